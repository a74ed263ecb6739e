-- The end of a release: deletes the lock, and wakes one of the waiting clients, or all. Before it come
-- release_begin.lua, which defines the variables that this file doesn't, and next.lua: see handOver in script.go.
--
-- KEYS[1]  the lock
-- ARGV[1]  owner
-- ARGV[2]  'publish', or 'spublish' where channels are sharded
-- ARGV[3]  'numsub', or 'shardnumsub' where channels are sharded: the PUBSUB subcommand that counts subscribers
-- ARGV[4]  0 = wake all waiting clients, 1 = pass the lock on to one if possible, and tell the others so, 2 = pass the
--          lock on to one if possible. See next.lua
-- ARGV[5]  the lock's token counter, '' = don't grant the lock to a waiter
-- ARGV[6]  an entry to remove from the wait set, '' = none; if it is ARGV[7], it stays if another client is chosen
-- ARGV[7]  the entry for the next waiter of this client, which is added if another client is chosen; '' = none
-- ARGV[8]  how long the wait set is kept for that waiter, ms. ARGV[6..8] may be left out
--
-- Returns  1              released and published
--          2              released, and a client other than that of ARGV[7] was woken
--          {1, 0, text}   released, but a step that notifies waiters was refused with that error; waiters have timers
--          {0, 0, taken}  not the owner's (any more); taken = 1 when somebody else holds it
--          or what next.lua returns
--
-- To wake all, '0' is published. To wake the client that has waited longest, the time is published on its channel,
-- <channel>:<tag>. With ARGV[4] = 1, the tag is also published on the lock's channel: the other clients then wait a
-- moment before they ask. Redisson's waiters ignore tags.
if not found[1] then
  redis.call('hdel', KEYS[1], ARGV[1]) -- changes nothing, but fails at a replica, which may lack what its primary has
  local taken = redis.call('exists', KEYS[1])
  if updateWaitSet then
    updateWaitSet()
  end
  if taken == 0 then -- the client that an earlier run has woken may be gone; a cleanup may be meant to wake all
    tell(ARGV[2], channel, '0')
  end
  return {0, 0, taken}
end
if not takenBack then
  redis.call('del', KEYS[1])
  if updateWaitSet then
    updateWaitSet()
  end
end

local message, done = '0', 1
-- If the count is 0, the client is gone or the message was refused: then all are woken.
if nextClient and tell(ARGV[2], channel .. ':' .. nextClient, wokenAt) > 0 then
  if nextClient ~= string.sub(add, 1, 10) then
    done = 2
  end
  if ARGV[4] == '2' then
    return done
  end
  message = nextClient
end
local _, unheard = tell(ARGV[2], channel, message)
refused = unheard or refused
if refused then
  return {1, 0, refused}
end
return done
