-- Gives the lock back: to one of the clients that wait, or to all.
--
-- KEYS[1]  the lock
-- ARGV[1]  owner
-- ARGV[2]  'publish', or 'spublish' where channels are sharded
-- ARGV[3]  'numsub', or 'shardnumsub' where channels are sharded; a server that doesn't know it can't count them
-- ARGV[4]  0 when all who wait are to be woken, 1 when one client may be and all may hear of it, 2 when only that one is to hear
-- ARGV[5]  the token counter of the lock's slot, '' = the lock is granted to nobody
-- ARGV[6]  an entry to take out of the set of those that wait, '' = none; ARGV[7] itself stays if others wait. This and the two that follow may
--          be left out
-- ARGV[7]  the entry for the next waiter of this client, if others wait; '' = none
-- ARGV[8]  for how long the set is kept for that waiter, ms
--
-- Returns  1              released and published
--          2              released, and another client was told of it, which has waited
--          {1, 0, text}   released, and a step that tells of it was refused with that error; waiters have their timers
--          {0, 0, taken}  not the owner's (any more); taken = 1 when somebody else holds it
--          or what next.lua returns
--
-- What is published is '0', at which all ask; or the time on the channel of the client that has waited longest, <channel>:<tag>, and perhaps
-- that tag for the others, at which they wait a moment. Redisson's waiters know '0' only. It comes after entry.lua and next.lua.
if not found[1] then
  redis.call('hdel', KEYS[1], ARGV[1]) -- no such field; refused by a replica, which may lack what its primary has
  if settle then
    settle()
  end
  local taken = redis.call('exists', KEYS[1])
  if taken == 0 then -- whoever was woken for it may be gone
    tell(ARGV[2], channel, '0')
  end
  return {0, 0, taken}
end
if not given then
  redis.call('del', KEYS[1])
  if settle then
    settle()
  end
end

local message, done = '0', 1
if nextClient and tell(ARGV[2], channel .. ':' .. nextClient, calledAt) > 0 then -- else it is gone
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
