-- Gives a reader's share of a read-write lock back. The keys are those of rw.lua.
--
-- ARGV[1]  owner
-- ARGV[2]  channel that waiters listen on
-- ARGV[3]  'publish', or 'spublish' where channels are sharded
--
-- Returns  {1, now}         given back, and published if nobody else holds the lock
--          {0, now, taken}  not the owner's (any more); taken = 1 when somebody else holds it
local seen = look(ARGV[1])
redis.call('del', KEYS[5])
if redis.call('hdel', KEYS[1], ARGV[1]) == 0 then
  return {0, now, redis.call('exists', KEYS[1])}
end
settle(seen)
if not seen.longest then
  redis.call(ARGV[3], ARGV[2], '0')
end
return {1, now}
