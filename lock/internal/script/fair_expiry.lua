-- Redisson gives a queue no expiry, and its scripts keep the one that they find. Without one, a waiter of ours that died last would leave two keys
-- for ever. It comes after fair_queue.lua. That a step is refused is no reason to fail: nobody waits for it.
local hour = 3600000

-- lengthen lets the queue expire half a day after the last deadline in it, or later. Every question of a waiter of ours does it anew, so no waiter
-- that is in the queue by then loses its place. The half day is for those of Redisson's that come later, when all of ours are dead: a
-- queue without waiters doesn't exist, so only one that never gets empty for so long is cut, once.
local function lengthen(queue, ms)
  pcall(function()
    local last = redis.call('zrange', queue.deadlines, -1, -1, 'withscores')[2]
    local need = math.max(last - ms, 0) + 12 * hour
    for _, key in ipairs({queue.waiters, queue.deadlines}) do
      if redis.call('pttl', key) < need then
        redis.call('pexpire', key, string.format('%.0f', need + 12 * hour))
      end
    end
  end)
end

-- restore takes the expiry away when the last waiter of ours has left the queue, and Redisson's are left in it.
local function restore(queue)
  pcall(function()
    if redis.call('zcard', queue.alive) == 0 and redis.call('zcard', queue.deadlines) > 0 then
      redis.call('persist', queue.waiters)
      redis.call('persist', queue.deadlines)
    end
  end)
end
