-- The expiry of a FairMutex's queue. Redisson sets none, but keeps one that is set. Without an expiry, two keys would
-- stay for ever if the last waiter was ours and died. A command that is refused doesn't fail the script.
local hour = 3600000

-- lengthen makes the queue expire 12 to 24 hours after its last deadline. It is called whenever a waiter of ours asks
-- and has to go on waiting. So no waiter that is in the queue at that time loses its place. The 12 hours are for
-- Redisson's waiters that come when all of ours are dead. When a queue becomes empty, Redis deletes its key and thus
-- the expiry. So only a queue that isn't empty at any time in those 12 hours is lost.
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

-- restore removes the expiry when the last waiter of ours has left the queue and waiters of Redisson's are in it.
local function restore(queue)
  pcall(function()
    if redis.call('zcard', queue.alive) == 0 and redis.call('zcard', queue.deadlines) > 0 then
      redis.call('persist', queue.waiters)
      redis.call('persist', queue.deadlines)
    end
  end)
end
