-- The part of a release that chooses the next client, if others wait and not all of them are to be woken. It grants the
-- lock to that client's next waiter, if the wait set has the waiter's owner and nothing below forbids it. Step 2 of the
-- protocol in lock/internal/waitset/waitset.go.
--
-- A client is chosen only if the channel has as many subscribers as the wait set (KEYS[3] of acquire.lua) has entries.
-- Otherwise all are woken: with more subscribers than entries, a client waits that has no entry; with fewer, a client
-- of the set isn't subscribed any more. The set and the token counter aren't in the KEYS of release.lua, so that it
-- works if they can't be used (an ACL, a slot that moves): without the set it wakes all, without the counter it only
-- wakes the chosen client. If the set or the counter is missing, it isn't created: the slot may be moving to this node,
-- and the key may not have arrived yet.
--
-- The grant lasts for the short trust time in the waiter's entry. Its message on <channel>:<tag> is
--   <token> <time> <traceparent of the old owner, or '-'>\n<new owner>\n<old owner>
-- The message to the others, if there is one, is '-<tag>': they ask when the trust time is over. A client whose score
-- is older than the trust time is only woken: it may have been stopped since, and a grant to it would keep the lock
-- from the others for that time.
--
-- The subscribers of <channel>:<tag> are counted before the grant. The count that publishing returns isn't used: a
-- sharded message also reaches subscribers at the shard's replicas, which this count leaves out, and a client that gets
-- the message believes it.
--
-- Returns  {4, now}         released, and granted to a waiter by a message: a remote grant
--          {5, now, token}  handed over to the waiter of ARGV[9]: its client was chosen
--
-- ARGV[9..12] are those of hand_over.lua, or missing. Needs release_begin.lua and transfer.lua.
local set = tagged('lockdog_wait:', KEYS[1])
local function present(entry)
  return entry ~= '' and type(redis.pcall('zscore', set, entry)) == 'string'
end
local function counted(channel)
  local reply = redis.pcall('pubsub', ARGV[3], channel)
  return reply[2], reply.err
end

-- gone: the entry that leaves the set in any case (see ARGV[6] of release.lua). waiting: how many entries the set has
-- once gone has left and add has joined.
local gone = remove ~= add and remove or ''
local waiting = redis.pcall('zcard', set)
if type(waiting) ~= 'number' or (fairWaits and foreignSet(set)) then -- acquire.lua sets '+' alone only after this check
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
end
if listening and waiting == listening and waiting > 0 then
  local first = redis.pcall('zrange', set, 0, 1, 'withscores')
  local entry, since = first[1], first[2]
  if entry == gone then
    entry, since = first[3], first[4]
  end
  updateWaitSet = function()
    redis.pcall('zrem', set, entry or '', gone)
    if adds and entry ~= add then
      redis.pcall('zadd', set, 'nx', nowText, add)
      redis.pcall('pexpire', set, ARGV[8])
    end
  end
  if entry and string.find(entry .. ' ', '^%d%d%d%d%d%d%d%d%d%d ') then
    nextClient, wokenAt = string.sub(entry, 1, 10), nowText
    local _, _, trust, traceparent, owner = string.find(entry, '^%d+ (%d+) (%S+) (.+)$')
    if owner and owner ~= ARGV[1] and ARGV[5] ~= '' and not fairWaits and now - since <= trust * 1000 then
      if traceparent == '-' then
        traceparent = ''
      end
      local handsOver, to = owner == ARGV[9] and not late(ARGV[11]), channel .. ':' .. nextClient
      local token, text
      if handsOver or (counted(to) or 0) > 0 then
        token, text = transfer(KEYS[1], ARGV[1], ARGV[5], true,
          owner, handsOver and ARGV[10] or trust, waiting > 1 and '+' or '', traceparent)
      end
      if token then
        updateWaitSet()
      end
      if token and handsOver then
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
        nextClient, takenBack = nil, true -- the message was refused (by an ACL, say), so nobody got it
        redis.pcall('hdel', KEYS[1], owner, '@lockdog')
      end
    end
  end
elseif listening and waiting > listening then
  updateWaitSet = function()
    redis.pcall('del', set) -- all are woken: each live client adds its entry when it asks
  end
end
