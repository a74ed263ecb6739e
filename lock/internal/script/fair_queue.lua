-- What scripts that look at the queue of a FairMutex share. A queue is a table of three keys: waiters, deadlines and alive are KEYS[3], KEYS[4] and
-- KEYS[5] of fair_acquire.lua. It comes after owner.lua.

-- checkWaiter fails where what is in the queue is no waiter: what others keep there is left alone.
local function checkWaiter(name)
  if name and not isOwner(name) then
    error({err = 'WRONGTYPE The key of the queue holds other things'})
  end
end

-- leave takes a waiter out of the queue. One that is left in the list alone counts as dead.
local function leave(queue, waiter)
  redis.call('zrem', queue.deadlines, waiter)
  redis.call('zrem', queue.alive, waiter)
  redis.call('lrem', queue.waiters, 1, waiter)
end

-- first returns the head of the queue, the time in ms until which its place is kept, and whether it removed dead waiters before it. The waiter 'me'
-- isn't dead: it is asking.
local function first(queue, ms, me)
  local cleared = false
  while true do
    local head = redis.call('lindex', queue.waiters, 0)
    if not head then
      return false, 0, cleared
    end
    checkWaiter(head)
    local place = tonumber(redis.call('zscore', queue.alive, head) or redis.call('zscore', queue.deadlines, head) or 0)
    if head == me or place > ms then
      return head, place, cleared
    end
    leave(queue, head)
    cleared = true
  end
end
