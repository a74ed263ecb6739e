-- Ends a lease whose lock stays taken for a while. The lock gets an expiry, and the owner is replaced by
-- '<owner>:released', so that a delayed renewal or acquire doesn't find it. Waiters are notified: they ask again and
-- learn for how long the lock stays taken. The queue of a FairMutex is notified as by a release.
--
-- KEYS[1]  the lock
-- KEYS[3..5]  of a FairMutex: as in fair_release.lua
-- ARGV[1]  owner
-- ARGV[2]  channel that waiters listen on
-- ARGV[3]  'publish', or 'spublish' where channels are sharded
-- ARGV[4]  how long the lock stays taken, ms
--
-- Returns  1              done, by this call or an earlier one
--          {1, 0, text}   done, but a step that notifies waiters was refused with that error; waiters have timers
--          {0, 0, taken}  not the owner's (any more); taken = 1 when somebody else holds it

local queue = {waiters = KEYS[3], deadlines = KEYS[4], alive = KEYS[5]}

-- wake notifies waiters. It returns the error's text if a command was refused.
local function wake()
  local refused, unheard
  if KEYS[3] then
    refused = after(function() unheard = callUp(queue, math.floor(now / 1000), ARGV[3], ARGV[2]) end)
  end
  local _, unheardByAll = tell(ARGV[3], ARGV[2], '0')
  return refused or unheard or unheardByAll
end

local released = ARGV[1] .. ':released'
local found = redis.call('hmget', KEYS[1], ARGV[1], released)
if not found[1] then
  redis.call('hdel', KEYS[1], ARGV[1]) -- see release.lua
  if KEYS[3] then -- a delayed acquire of the owner may have taken a place
    after(function()
      leave(queue, ARGV[1])
      restore(queue)
    end)
  end
  if found[2] then
    -- An earlier try that ran late has set too long an expiry.
    if redis.call('pttl', KEYS[1]) > tonumber(ARGV[4]) then
      redis.call('pexpire', KEYS[1], ARGV[4])
      wake()
    end
    return 1
  end
  local taken = redis.call('exists', KEYS[1])
  if taken == 0 then
    wake()
  end
  return {0, 0, taken}
end
-- Removes nothing, but fails before any change if an ACL forbids HDEL. After it, a full Redis also accepts an HSET.
redis.call('hdel', KEYS[1], released)
redis.call('hset', KEYS[1], released, found[1])
local set = redis.pcall('pexpire', KEYS[1], ARGV[4])
if type(set) == 'table' then
  redis.call('hdel', KEYS[1], released)
  return set
end
redis.call('hdel', KEYS[1], ARGV[1]) -- last: see transfer.lua
local refused = wake()
return refused and {1, 0, refused} or 1
