-- The server's time in µs, as a number and as text: Lua's tostring would round it.
local time = redis.call('time')
local now = time[1] * 1000000 + time[2]
local nowText = time[1] .. (#time[2] == 6 and time[2] or string.sub('00000' .. time[2], -6))

-- later reports whether time a is after time b. Both are text: to parse or format a number takes as long as a command.
local function later(a, b)
  return #a > #b or #a == #b and a > b
end

-- late reports whether a not-after has passed: the server time in µs after which a script must write nothing; '0' =
-- unknown.
local function late(notAfter)
  return notAfter ~= '0' and later(nowText, notAfter)
end
