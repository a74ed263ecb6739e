-- Gives one permit with a lease back.
--
-- KEYS[1]  the number of permits that are left
-- KEYS[2]  the permits that are taken: a sorted set of owner -> end of its lease, ms
-- KEYS[3]  the token counter of the slot: not used
-- ARGV[1]  owner, as 16 bytes
-- ARGV[2]  channel that waiters listen on
-- ARGV[3]  'publish', or 'spublish' where channels are sharded
--
-- Returns  {1, now}     released
--          {0, now, 0}  not the owner's (any more)
if redis.call('zrem', KEYS[2], ARGV[1]) == 0 then
  return {0, now, 0}
end
local left = redis.call('incr', KEYS[1])
if left > 0 then
  redis.call(ARGV[3], ARGV[2], left)
end
return {1, now}
