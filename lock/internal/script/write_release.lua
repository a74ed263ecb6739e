-- Releases a writer's lock, and removes the writer from the waiting writers. Readers that entered under its lease keep
-- the lock. rw.lua describes KEYS.
--
-- ARGV[1]  owner; it ends in ':write'
-- ARGV[2]  channel that waiters listen on
-- ARGV[3]  'publish', or 'spublish' where channels are sharded
--
-- Returns  {1, now}         released and published
--          {1, now, text}   released, but a step that follows was refused with that error
--          {0, now, taken}  not the owner's (any more); taken = 1 when somebody else holds it

-- leaveDead removes the waiting writers whose place has ended.
local function leaveDead()
  lastWriter() -- raises an error if the key isn't ours
  redis.call('zremrangebyscore', KEYS[3], '-inf', ms)
end

local seen = look(ARGV[1])
if seen.alien and redis.call('hexists', KEYS[1], ARGV[1]) == 1 then
  return seen.alien
end
if redis.call('hdel', KEYS[1], ARGV[1]) == 1 then
  local refused = after(function() removeDead(seen) end)
  refused = gone(ARGV[3], ARGV[2]) or refused
  local failed = after(function()
    redis.call('del', KEYS[5])
    redis.call('zrem', KEYS[3], ARGV[1])
    leaveDead()
  end)
  refused = refused or failed
  return refused and {1, now, refused} or {1, now}
end
local taken = redis.call('exists', KEYS[1])
if taken == 0 then -- the lock's key may have been deleted, or have expired, without a message
  tell(ARGV[3], ARGV[2], '1')
end
local last = redis.call('zrange', KEYS[3], -1, -1)[1] -- whose place readers wait for: the others may all be dead
if redis.call('zrem', KEYS[3], ARGV[1]) == 1 then
  after(function()
    leaveDead()
    if taken == 1 and last == ARGV[1] then
      tell(ARGV[3], ARGV[2], '1')
    end
  end)
end
redis.pcall('del', KEYS[5])
return {0, now, taken}
