-- Gives a writer's lock back, to those who read on under it or to everybody, and has nobody wait for the writer any
-- more. The keys are those of rw.lua.
--
-- ARGV[1]  owner; it ends in ':write'
-- ARGV[2]  channel that waiters listen on
-- ARGV[3]  'publish', or 'spublish' where channels are sharded
--
-- Returns  {1, now}         given back and published
--          {0, now, taken}  not the owner's (any more); taken = 1 when somebody else holds it
local seen = look(ARGV[1])
redis.call('del', KEYS[5])
local waited = redis.call('zrem', KEYS[3], ARGV[1]) == 1
redis.call('zremrangebyscore', KEYS[3], '-inf', ms)
if redis.call('hdel', KEYS[1], ARGV[1]) == 1 then
  settle(seen)
  gone(ARGV[3], ARGV[2])
  return {1, now}
end
if waited and redis.call('exists', KEYS[3]) == 0 then -- readers waited for it
  redis.call(ARGV[3], ARGV[2], '1')
end
return {0, now, redis.call('exists', KEYS[1])}
