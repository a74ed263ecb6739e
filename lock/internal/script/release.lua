-- Gives the lock back: to one of the clients that wait, or to all.
--
-- KEYS[1]  the lock
-- ARGV[1]  owner
-- ARGV[2]  'publish', or 'spublish' where channels are sharded
-- ARGV[3]  'numsub', or 'shardnumsub' where channels are sharded; a server that doesn't know it can't count them
-- ARGV[4]  0 when all who wait are to be woken, 1 when one client may be and all may hear of it, 2 when only that one is to hear
--
-- Returns  1              released and published
--          {1, 0, text}   released, and a step that tells of it was refused with that error; waiters have their timers
--          {0, 0, taken}  not the owner's (any more); taken = 1 when somebody else holds it
--
-- What is published is '0', at which all ask; or '0' on the channel of the client that has waited longest, <channel>:<number>, and perhaps that
-- number for the others, at which they wait a moment. Redisson's waiters know '0' only. So one client is called where as many listen as
-- are in the set of those that wait (KEYS[3] of acquire.lua): with one more, somebody waits who isn't in it, with one less, somebody
-- in it doesn't listen any more. The set isn't in KEYS: a release makes none, and who may not use it (an ACL, a slot that moves) wakes all.
-- It comes after channel.lua and entry.lua.
if not found[1] then
  redis.call('hdel', KEYS[1], ARGV[1]) -- no such field; refused by a replica, which may lack what its primary has
  local taken = redis.call('exists', KEYS[1])
  if taken == 0 then -- whoever was woken for it may be gone
    tell(ARGV[2], channel, '0')
  end
  return {0, 0, taken}
end
redis.call('del', KEYS[1])

local message, refused = '0'
if ARGV[4] ~= '0' and othersWait then
  local set = tagged('lockdog_wait:', KEYS[1])
  local waiting = redis.pcall('zcard', set)
  if not listening then
    local counted = redis.pcall('pubsub', ARGV[3], channel)
    listening, refused = counted[2], counted.err
    if refused and string.find(refused, 'nknown', 1, true) then -- by a node of a cluster before Redis 7: all are woken
      refused = nil
    end
  end
  if listening and waiting == listening then
    local first = redis.pcall('zpopmin', set)[1]
    if first and string.find(first, '^%d%d%d%d%d%d%d%d%d%d$') then
      if tell(ARGV[2], channel .. ':' .. first, '0') > 0 then -- else it is gone
        if ARGV[4] == '2' then
          return 1
        end
        message = first
      end
    end
  elseif listening and type(waiting) == 'number' and waiting > listening then
    redis.pcall('del', set) -- those who live are in it again when they have asked
  end
end
local _, unheard = tell(ARGV[2], channel, message)
refused = unheard or refused
if refused then
  return {1, 0, refused}
end
return 1
