-- draw takes the next token from a counter: the time, or, where the clock is behind the last one, what follows that. It returns the
-- number and its text. It comes after clock.lua.
local function draw(counter)
  local last = redis.call('set', counter, nowText, 'get')
  if not last or later(nowText, last) then
    return now, nowText
  end
  last = tonumber(last) or 0
  if last < now or last >= 9007199254740992 then -- none of ours: a number of Lua can't be one more than 2^53
    return now, nowText
  end
  local text = string.format('%.0f', last + 1)
  redis.call('set', counter, text)
  return last + 1, text
end
