-- Ends a lease whose lock stays taken for a while: it expires then, and those who wait are told to look when.
--
-- KEYS[1]  the lock
-- ARGV[1]  owner
-- ARGV[2]  channel that waiters listen on
-- ARGV[3]  'publish', or 'spublish' where channels are sharded
-- ARGV[4]  for how long the lock stays taken, ms
--
-- Returns  1              done and published
--          {1, 0, text}   done, and the message was refused with that error; waiters have their timers
--          {0, 0, taken}  not the owner's (any more); taken = 1 when somebody else holds it
--
-- It comes after tell.lua.
if redis.call('hexists', KEYS[1], ARGV[1]) == 0 then
  redis.call('hdel', KEYS[1], ARGV[1]) -- see release.lua
  local taken = redis.call('exists', KEYS[1])
  if taken == 0 then
    tell(ARGV[3], ARGV[2], '0')
  end
  return {0, 0, taken}
end
redis.call('pexpire', KEYS[1], ARGV[4])
local _, refused = tell(ARGV[3], ARGV[2], '0')
return refused and {1, 0, refused} or 1
