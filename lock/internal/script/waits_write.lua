-- Changes the waits of a client, and refreshes them.
--
-- KEYS[1]  the client's waits: a hash
-- ARGV[1]  not-after: the server time in µs after which this call must write nothing; 0 = unknown
-- ARGV[2]  how long they live from now on, in ms
-- ARGV[3]  1 = they are written anew: nothing of what was there stays
-- ARGV[4]  how many fields are removed; they follow
-- ARGV[..] fields that are set, each with its value
--
-- Returns  {0, now} the key wasn't there: of what was written before, nothing is left; {1, now} it was, or that doesn't matter; {2, now} it
--          came too late. Running it twice is harmless.
if late(ARGV[1]) then
  return {2, now}
end
-- What may be refused comes before what changes something: to remove a field that isn't there changes nothing.
local known = redis.call('pexpire', KEYS[1], ARGV[2])
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
redis.call('pexpire', KEYS[1], ARGV[2])
return {known, now}
