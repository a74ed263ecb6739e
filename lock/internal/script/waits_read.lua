-- Reads waits of a client. A script, not a plain read: see inspect.lua.
--
-- KEYS[1]  the client's waits: a hash
-- ARGV     fields
--
-- Returns  {PTTL of the key, for each field its value or nil}
local out = {redis.call('pttl', KEYS[1])}
for i, value in ipairs(redis.call('hmget', KEYS[1], unpack(ARGV))) do
  out[i + 1] = value
end
return out
