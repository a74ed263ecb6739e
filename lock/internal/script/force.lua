-- Deletes the lock, wakes the waiters and notifies the holder.
--
-- KEYS[1]  the lock
-- KEYS[3]  of a FairMutex only: its queue; the first waiter is then woken even if the lock has no mark
-- ARGV[1]  channel that waiters listen on
-- ARGV[2]  'publish', or 'spublish' where channels are sharded
-- ARGV[3]  prefix of the control channels; a holder of ours listens on prefix .. owner without '-<seq>'
-- ARGV[4]  the calling client, to be named to the holder
--
-- Returns  0                           the lock was free
--          {1, text or nil, owner...}  it was held by these owners (ten at most); text: the error to a message
--
-- It has no owner: a second run takes the lock from the next holder.
local hash = redis.call('hgetall', KEYS[1])
local alien = #hash > 0 and foreign(hash)
if alien then
  return alien
end
if redis.call('del', KEYS[1]) == 0 then
  return 0
end
local queued = KEYS[3]
for i = 1, #hash, 2 do
  queued = queued or hash[i] == '@lockdog' and string.byte(hash[i + 1], 2) == fairMark
end
if queued then
  wakeFair(KEYS[1], ARGV[2], ARGV[1])
end
local _, refused = tell(ARGV[2], ARGV[1], '0')
local held = {1, false}
for i = 1, #hash, 2 do
  refused = tellForced(held, hash[i], string.match(hash[i], '^(.+)%-%d+$')) or refused
end
held[2] = refused or false
return held
