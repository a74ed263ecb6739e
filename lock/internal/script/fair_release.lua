-- Releases the lock, and wakes the next in the queue and the waiters for a Mutex with the same name; or removes from
-- the queue an owner that no longer waits.
--
-- KEYS[1]  the lock
-- KEYS[2]  unused: all scripts of a kind take the same keys
-- KEYS[3]  the queue, see fair_acquire.lua
-- KEYS[4]  Redisson's deadlines
-- KEYS[5]  until when each waiter of ours counts as alive
-- ARGV[1]  owner
-- ARGV[2]  channel of the waiters for a Mutex; a waiter in the queue listens on that .. ':<owner>'
-- ARGV[3]  'publish', or 'spublish' where channels are sharded
--
-- Returns  {1, now}         released
--          {1, now, text}   released, and a step that wakes the next was refused with that error
--          {0, now, taken}  not the owner's (any more); taken = 1 when somebody else holds it
--
-- Waiters for a Mutex aren't in the queue. The client that asks first gets the lock, so the queue is notified first. The
-- waiters for a Mutex are notified at every release, as not all of them leave a mark. After the DEL no refused command
-- fails the release.
local queue = {waiters = KEYS[3], deadlines = KEYS[4], alive = KEYS[5]}

local own = redis.call('hexists', KEYS[1], ARGV[1]) == 1
local waits = redis.call('zscore', queue.deadlines, ARGV[1]) or redis.call('zscore', queue.alive, ARGV[1])

-- kept reports whether the lock is taken only because of WithMinHold: see retain.lua.
local function kept()
  local hash = redis.call('hgetall', KEYS[1])
  for i = 1, #hash, 2 do
    if string.sub(hash[i], -9) == ':released' then
      return true
    end
  end
end

-- finish removes the owner from the queue if it is there, and wakes the next in the queue if wake is true. It returns
-- the error's text if a command was refused.
local function finish(wake)
  if waits then
    leave(queue, ARGV[1])
    restore(queue)
  end
  if wake then
    return callUp(queue, math.floor(now / 1000), ARGV[3], ARGV[2])
  end
end

if own then
  redis.call('del', KEYS[1])
  local untold
  local refused = after(function() untold = finish(true) end)
  local _, unheard = tell(ARGV[3], ARGV[2], '0')
  refused = refused or untold or unheard
  return refused and {1, now, refused} or {1, now}
end
redis.call('hdel', KEYS[1], ARGV[1]) -- see release.lua
local taken = redis.call('exists', KEYS[1])
if waits then
  redis.call('zrem', queue.deadlines, ARGV[1])
end
after(function() finish(taken == 0 or waits and kept()) end)
if taken == 0 and not waits then -- the lock's key may have been deleted, or have expired, without a message
  tell(ARGV[3], ARGV[2], '0')
end
return {0, now, taken}
