-- The beginning of a release: it reads the owner's field of the lock, and '@lockdog'. Either may be missing. A release
-- consists of this file and those that handOver in script.go puts after it. They share these variables.
local channel = tagged(channels, KEYS[1])
local found = redis.call('hmget', KEYS[1], ARGV[1], '@lockdog')
local mark, fair = string.byte(found[2] or '', 1, 2)
local setMayHaveOthers, fairWaits = mark == waitMark, fair == fairMark
local listening -- set by near.lua or next.lua: the number of the channel's subscribers; nil = not counted
local refused -- set by next.lua or release.lua: the text of the server's error to a step that notifies waiters
local nextClient, wokenAt -- set by next.lua: the tag of the client that release.lua wakes, and the time, as text
local takenBack -- set by next.lua: the lock was granted to a waiter by a message that was refused, and taken back

-- updateWaitSet is called once the lock was released, passed on, or found not to be the owner's: if a command fails
-- before that, the wait set stays unchanged. next.lua may replace it.
local remove, add = ARGV[6] or '', ARGV[7] or ''
local updateWaitSet
if remove ~= '' then
  updateWaitSet = function()
    redis.pcall('zrem', tagged('lockdog_wait:', KEYS[1]), remove)
  end
end
