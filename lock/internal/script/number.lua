-- isNumber says whether that is the number of a semaphore or a latch, as Redis writes it, and not so large that Lua would round it. IsNumber in
-- owner.go is the same.
local function isNumber(text)
  return text == '0' or #text < 16 and string.find(text, '^%-?[1-9]%d*$')
end

-- noNumber is the answer where it is something else. It is Redis's own.
local function noNumber()
  return redis.error_reply('ERR value is not an integer or out of range')
end
