-- The beginning of a release: it reads the owner's field of the lock, and '@lockdog'. Either may be missing. A release
-- consists of this file and those that follow it, which share these variables: see script.go.
local channel = tagged(channels, KEYS[1])
local found = redis.call('hmget', KEYS[1], ARGV[1], '@lockdog')
local mark, fair = string.byte(found[2] or '', 1, 2)
local othersWait, fairWaits = mark == waitMark, fair == fairMark
local listening -- the number of the channel's subscribers; nil = not counted
local refused -- the text of the server's error to a step that notifies waiters
local nextClient, wokenAt -- the tag of the client to wake, and the time, as text
local takenBack -- the lock was granted to a waiter by a message that was refused, and taken back

-- updateWaitSet is called once the lock was released, passed on, or found not to be the owner's: if a command fails
-- before that, the wait set stays unchanged.
local takeOut, add = ARGV[6] or '', ARGV[7] or ''
local updateWaitSet
if takeOut ~= '' then
  updateWaitSet = function()
    redis.pcall('zrem', tagged('lockdog_wait:', KEYS[1]), takeOut)
  end
end
