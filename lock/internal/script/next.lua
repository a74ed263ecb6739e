-- Finds which of the clients that wait is to have the lock next, and gives it to that client's next waiter if that is known. It is a part of
-- release.lua, where others wait and not all of them are to be woken. It is step 2 of the protocol in lock/internal/waitset/waitset.go.
--
-- One client is chosen where as many listen as are in the set of those that wait (KEYS[3] of acquire.lua): with one more, somebody waits who
-- isn't in it, with one less, somebody in it doesn't listen any more. Neither the set nor the counter are in KEYS: who may not use them (an ACL, a
-- slot that moves) wakes all. And neither is made anew here, for the node may be the one to which the slot moves, which has yet to get it.
--
-- The waiter is given the lock for the short time that it trusts a message, and told on <channel>:<tag>: token, time, the
-- traceparent of who released it, or '-', and on lines of their own the new and the old owner. All others may hear '-<tag>', at which they
-- ask when that time is over. A client that began to wait, or last had the lock, longer ago is called, not given the lock: it may have stopped
-- since, and then nobody would have it for so long.
--
-- That somebody listens on <channel>:<tag> is asked before the lock is given. Afterwards nobody can tell: a message is counted where it is published,
-- but a sharded one is heard at the shard's replicas, too, and whoever hears that it has the lock believes it.
--
-- Returns  {4, now}         released, and given to another client
--          {5, now, token}  given to the next waiter of this client, whose turn it was
--
-- ARGV[9..12] are those of hand_over.lua, or missing. It comes after entry.lua, clock.lua, token.lua and give.lua.
local set = tagged('lockdog_wait:', KEYS[1])
local function present(entry)
  return entry ~= '' and type(redis.pcall('zscore', set, entry)) == 'string'
end
local function counted(channel)
  local reply = redis.pcall('pubsub', ARGV[3], channel)
  return reply[2], reply.err
end

local gone = takeOut ~= add and takeOut or ''
local waiting = redis.pcall('zcard', set)
if type(waiting) ~= 'number' or fairWaits and others(set) then -- another mark is only where acquire.lua has looked
  waiting = 0
elseif present(gone) then
  waiting = waiting - 1
end
local adds = add ~= '' and waiting > 0
if adds and not present(add) then
  waiting = waiting + 1
end
if not listening then
  listening, refused = counted(channel)
  if refused and string.find(refused, 'nknown', 1, true) then -- by a node of a cluster before Redis 7: all are woken
    refused = nil
  end
end
if listening and waiting == listening and waiting > 0 then
  local first = redis.pcall('zrange', set, 0, 1, 'withscores')
  local entry, since = first[1], first[2]
  if entry == gone then
    entry, since = first[3], first[4]
  end
  settle = function()
    redis.pcall('zrem', set, entry or '', gone)
    if adds and entry ~= add then
      redis.pcall('zadd', set, 'nx', nowText, add)
      redis.pcall('pexpire', set, ARGV[8])
    end
  end
  if entry and string.find(entry .. ' ', '^%d%d%d%d%d%d%d%d%d%d ') then
    nextClient, calledAt = string.sub(entry, 1, 10), nowText
    local _, _, trust, traceparent, owner = string.find(entry, '^%d+ (%d+) (%S+) (.+)$')
    if owner and owner ~= ARGV[1] and ARGV[5] ~= '' and not fairWaits and now - since <= trust * 1000 then
      if traceparent == '-' then
        traceparent = ''
      end
      local own, to = owner == ARGV[9] and not late(ARGV[11]), channel .. ':' .. nextClient
      local token, text
      if own or (counted(to) or 0) > 0 then
        token, text = give(KEYS[1], ARGV[1], ARGV[5], true, owner, own and ARGV[10] or trust, waiting > 1 and '+' or '', traceparent)
      end
      if token then
        settle()
      end
      if token and own then
        return {5, now, token}
      elseif token then
        local from = string.match(found[2] or '', ' (%S+)$') or '-'
        local _, unheard = tell(ARGV[2], to, text .. ' ' .. nowText .. ' ' .. from .. '\n' .. owner .. '\n' .. ARGV[1])
        if not unheard then
          if ARGV[4] == '1' then
            tell(ARGV[2], channel, '-' .. nextClient)
          end
          return {4, now}
        end
        nextClient, given = nil, true -- refused, as by an ACL, and so heard by nobody
        redis.pcall('hdel', KEYS[1], owner, '@lockdog')
      end
    end
  end
elseif listening and waiting > listening then
  settle = function()
    redis.pcall('del', set) -- those who live are in it again when they have asked
  end
end
