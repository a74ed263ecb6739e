-- Changes the waits of a client, and refreshes them.
--
-- KEYS[1]  the client's waits: a hash
-- ARGV[1]  not-after: the server time in µs after which this call must write nothing; 0 = unknown
-- ARGV[2]  expiry of the key, ms from now
-- ARGV[3]  1 = all fields are removed that this call doesn't set
-- ARGV[4]  the number of fields to remove; they follow
-- ARGV[..] fields to set, each with its value
--
-- Returns  {0, now}  done; the key didn't exist: nothing was left of earlier writes
--          {1, now}  done; the key existed, or all other fields were removed
--          {2, now}  came too late, wrote nothing
--
-- Safe to run twice.
if late(ARGV[1]) then
  return {2, now}
end
-- No refused command may leave a part of the changes. HDEL of a missing field changes nothing: it shows, before the
-- first HSET, whether HDEL is allowed. PEXPIRE can't be tried before: if it is refused, the key is deleted.
local known = redis.call('hlen', KEYS[1]) > 0 and 1 or 0
redis.call('hdel', KEYS[1], '')
local gone, set = {}, 5 + ARGV[4]
for i = 5, set - 1 do
  gone[ARGV[i]] = true
end
if ARGV[3] == '1' then
  known = 1
  for _, field in ipairs(redis.call('hkeys', KEYS[1])) do
    gone[field] = true
  end
end
for i = set, #ARGV, 2 do
  redis.call('hset', KEYS[1], ARGV[i], ARGV[i + 1])
  gone[ARGV[i]] = nil
end
for field in pairs(gone) do
  redis.call('hdel', KEYS[1], field)
end
local kept = redis.pcall('pexpire', KEYS[1], ARGV[2])
if type(kept) == 'table' then -- refused: the key would stay
  redis.call('del', KEYS[1])
  return kept
end
return {known, now}
