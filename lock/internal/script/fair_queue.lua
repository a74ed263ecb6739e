-- The queue of a FairMutex: a table of the keys waiters, deadlines and alive, which are KEYS[3], KEYS[4] and KEYS[5] of
-- fair_acquire.lua. Needs owner.lua and tell.lua.

-- checkWaiter raises an error if an element of the queue isn't a waiter: the key is another program's, and isn't
-- changed.
local function checkWaiter(name)
  if name and not isOwner(name) then
    error({err = 'WRONGTYPE The key of the queue holds other things'})
  end
end

-- leave removes a waiter, from the list last: a waiter that is only in the list counts as dead.
local function leave(queue, waiter)
  redis.call('zrem', queue.deadlines, waiter)
  redis.call('zrem', queue.alive, waiter)
  redis.call('lrem', queue.waiters, 1, waiter)
end

-- first returns the head of the queue (false: it is empty), the time in ms until which the head's place is kept, and
-- whether dead waiters were removed before it. The waiter 'me' is alive: it makes this call.
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

-- callUp tells the head of the queue to ask. If nobody listens for it, because its connection is closed or not
-- subscribed, callUp tells the first of the next 16 that somebody listens for: that waiter learns until when the head's
-- place is kept. It returns the error's text if a command was refused.
local function callUp(queue, ms, publish, channel)
  local head = first(queue, ms)
  if not head then
    return
  end
  local heard, refused = tell(publish, channel .. ':' .. head, '0')
  if heard > 0 or refused then
    return refused
  end
  local behind = redis.pcall('lrange', queue.waiters, 1, 16)
  for _, waiter in ipairs(behind) do
    heard, refused = tell(publish, channel .. ':' .. waiter, '0')
    if heard > 0 or refused then
      return refused
    end
  end
  return behind.err
end
