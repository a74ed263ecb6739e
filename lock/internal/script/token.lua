-- noCounter is the error for a counter's key that holds something else. The key isn't changed.
local noCounter = {err = 'WRONGTYPE The key of the token counter holds text that is no number'}

-- follow returns the token that comes after last: the time, or last + 1 if the clock isn't past last. last is the text
-- of a counter, false = none. follow returns the token as a number and as text; nothing if last isn't a number. Needs
-- clock.lua.
local function follow(last)
  if last and (last == '' or string.find(last, '%D')) then
    return
  elseif not last or later(nowText, last) then
    return now, nowText
  end
  last = tonumber(last)
  if last < now or last >= 9007199254740992 then -- not lockdog's: leading zeros; or 2^53, to which Lua can't add 1
    return now, nowText
  end
  return last + 1, string.format('%.0f', last + 1)
end

-- draw draws the next token from a counter. It returns the token as a number and as text. If existing is true, it
-- raises an error if the counter doesn't exist; otherwise it creates the counter.
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
