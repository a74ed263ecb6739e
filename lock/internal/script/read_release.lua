-- Releases a reader's share of a read-write lock. rw.lua describes KEYS.
--
-- ARGV[1]  owner
-- ARGV[2]  channel that waiters listen on
-- ARGV[3]  'publish', or 'spublish' where channels are sharded
--
-- Returns  {1, now}         released, and published if nobody else holds the lock, or if a waiting writer may get it
--                           earlier than it knows
--          {1, now, text}   released, but a step that follows was refused with that error
--          {0, now, taken}  not the owner's (any more); taken = 1 when somebody else holds it
local seen = look(ARGV[1])
if seen.alien and redis.call('hexists', KEYS[1], ARGV[1]) == 1 then
  return seen.alien
end
if redis.call('hdel', KEYS[1], ARGV[1]) == 0 then
  local taken = redis.call('exists', KEYS[1])
  redis.pcall('del', KEYS[5])
  if taken == 0 then -- the lock's key may have been deleted, or have expired, without a message
    tell(ARGV[3], ARGV[2], '0')
  end
  return {0, now, taken}
end
-- Whether this lease would have ended last, by 0.1 s at least, and a writer waits: the other readers may all be dead. It
-- is never true in a lock with more than 64 holders (see look): the writer then asks a third of its lease later at most.
local earlier
local refused = after(function()
  removeDead(seen)
  earlier = seen.longest and redis.call('exists', KEYS[3]) == 1 and rest(KEYS[5]) > seen.left + 100
  redis.call('del', KEYS[5])
end)
if not seen.longest or earlier then
  local _, unheard = tell(ARGV[3], ARGV[2], '0')
  refused = refused or unheard
end
return refused and {1, now, refused} or {1, now}
