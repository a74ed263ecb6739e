-- wakeFair wakes the next in the queue of the FairMutex with the lock's name. A command that is refused (by an ACL, or
-- as the slot moves) doesn't fail the script: waiters of ours ask every third of their lease. Needs channel.lua,
-- tell.lua and fair_queue.lua.
local function wakeFair(key, publish, channel)
  pcall(function()
    local time = redis.call('time')
    local queue = {
      waiters = tagged('redisson_lock_queue:', key),
      deadlines = tagged('redisson_lock_timeout:', key), alive = tagged('lockdog_fair:', key),
    }
    callUp(queue, time[1] * 1000 + math.floor(time[2] / 1000), publish, channel)
  end)
end
