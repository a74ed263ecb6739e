-- isNumber reports whether text is the number of a semaphore or a latch: an integer as Redis writes it, and small
-- enough for Lua not to round it. IsNumber in owner.go is the same.
local function isNumber(text)
  return text == '0' or #text < 16 and string.find(text, '^%-?[1-9]%d*$')
end

-- noNumber returns Redis's own error for a value that isn't a number.
local function noNumber()
  return redis.error_reply('ERR value is not an integer or out of range')
end
