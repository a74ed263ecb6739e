-- The server's time in µs, which stands still while a script runs; and as text: Lua's own form would cut it short.
local time = redis.call('time')
local now = time[1] * 1000000 + time[2]
local nowText = time[1] .. (#time[2] == 6 and time[2] or string.sub('00000' .. time[2], -6))

-- later says whether one time comes after another, both as text: to read or write a number takes Lua as long as a command takes Redis.
local function later(a, b)
  return #a > #b or #a == #b and a > b
end

-- late says whether a not-after has passed: the server time in µs after which a script must write nothing; '0' = unknown.
local function late(notAfter)
  return notAfter ~= '0' and later(nowText, notAfter)
end
