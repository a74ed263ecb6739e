-- noCounter is the error where the key of a counter holds something else. It is left as it is.
local noCounter = {err = 'WRONGTYPE The key of the token counter holds text that is no number'}

-- follow returns the token after the last one of a counter, both as text, false = none: the time, or, if the clock is behind the last one, what
-- follows that. It returns the number and its text; nothing where the last one is no number. It comes after clock.lua.
local function follow(last)
  if last and (last == '' or string.find(last, '%D')) then
    return
  elseif not last or later(nowText, last) then
    return now, nowText
  end
  last = tonumber(last)
  if last < now or last >= 9007199254740992 then -- none of ours: a number of Lua can't be one more than 2^53
    return now, nowText
  end
  return last + 1, string.format('%.0f', last + 1)
end

-- draw takes the next token from a counter. It returns the number and its text. With existing it makes no counter: it fails where none is.
local function draw(counter, existing)
  local last
  if existing then
    last = assert(redis.call('set', counter, nowText, 'xx', 'get', 'keepttl'), 'no counter')
  else
    last = redis.call('set', counter, nowText, 'get', 'keepttl')
  end
  local token, text = follow(last)
  if token ~= now then
    redis.call('set', counter, text or last, 'keepttl')
  end
  if not token then
    error(noCounter)
  end
  return token, text
end
