-- Gives the lock back and wakes the next in the queue; or takes an owner that gives up waiting out of it.
--
-- KEYS[1]  the lock
-- KEYS[2]  unused: all scripts of a kind take the same keys
-- KEYS[3]  the queue, see fair_acquire.lua
-- KEYS[4]  Redisson's deadlines
-- KEYS[5]  until when a waiter of ours is taken to be alive
-- ARGV[1]  owner
-- ARGV[2]  channel that the next in the queue listens on, less ':<owner>'
-- ARGV[3]  'publish', or 'spublish' where channels are sharded
--
-- Returns  {1, now}         released
--          {1, now, text}   released, and a step that wakes the next was refused with that error
--          {0, now, taken}  not the owner's (any more); taken = 1 when somebody else holds it
local ms = math.floor(now / 1000)

local function leave(waiter) -- one that is left in the list alone is dead
  redis.call('zrem', KEYS[4], waiter)
  redis.call('zrem', KEYS[5], waiter)
  redis.call('lrem', KEYS[3], 1, waiter)
end

-- The dead leave the head of the queue, and who is next is woken.
local function wakeNext()
  local head
  repeat
    head = redis.call('lindex', KEYS[3], 0)
    local place = head and tonumber(redis.call('zscore', KEYS[5], head) or redis.call('zscore', KEYS[4], head) or 0)
    local dead = head and place <= ms
    if dead then
      leave(head)
    end
  until not dead
  if head then
    local _, refused = tell(ARGV[3], ARGV[2] .. ':' .. head, '0')
    return refused
  end
end

local function waits()
  return redis.call('zscore', KEYS[4], ARGV[1]) or redis.call('zscore', KEYS[5], ARGV[1])
end

local refused
if redis.call('hexists', KEYS[1], ARGV[1]) == 1 then
  redis.call('del', KEYS[1])
  local unheard
  refused = after(function()
    if waits() then
      leave(ARGV[1])
    end
  end)
  local failed = after(function() unheard = wakeNext() end)
  refused = refused or failed or unheard
  return refused and {1, now, refused} or {1, now}
end

redis.call('hdel', KEYS[1], ARGV[1]) -- see release.lua
local taken = redis.call('exists', KEYS[1])
if waits() then
  local first = redis.call('lindex', KEYS[3], 0) == ARGV[1]
  redis.call('zrem', KEYS[4], ARGV[1])
  after(function() leave(ARGV[1]) end)
  if first and taken == 0 then
    after(wakeNext)
  end
end
return {0, now, taken}
