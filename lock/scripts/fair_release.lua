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
--          {0, now, taken}  not the owner's (any more); taken = 1 when somebody else holds it
local ms = math.floor(now / 1000)

local function leave(waiter)
  redis.call('lrem', KEYS[3], 1, waiter)
  redis.call('zrem', KEYS[4], waiter)
  redis.call('zrem', KEYS[5], waiter)
end

local own = redis.call('hexists', KEYS[1], ARGV[1]) == 1
if own then
  redis.call('del', KEYS[1])
else
  redis.call('hdel', KEYS[1], ARGV[1]) -- see release.lua
end

local wake = own
if redis.call('zscore', KEYS[4], ARGV[1]) or redis.call('zscore', KEYS[5], ARGV[1]) then
  wake = wake or redis.call('lindex', KEYS[3], 0) == ARGV[1]
  leave(ARGV[1])
end

local taken = redis.call('exists', KEYS[1])
if wake and taken == 0 then
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
    redis.call(ARGV[3], ARGV[2] .. ':' .. head, '0')
  end
end
if own then
  return {1, now}
end
return {0, now, taken}
