-- Takes a free lock for one owner, or returns its holder. Step 1 of the protocol in lock/internal/waitset/waitset.go.
--
-- KEYS[1]  the lock: a hash of owner -> count, and of '@lockdog' -> '[+[~]]<token>[ <traceparent>]'. With '+' a release
--          looks for waiters in KEYS[3], with '~' also in the queue of a FairMutex (see fair_acquire.lua). An owner that
--          ends in ':released' has released the lock: see retain.lua
-- KEYS[2]  the lock's token counter; left out while the slot moves (then the token is TIME alone)
-- KEYS[3]  the lock's wait set: a sorted set of the entries of waiting clients -> since when, µs; left out by a client
--          without an entry. See next.lua
-- ARGV[1]  owner
-- ARGV[2]  lease, ms
-- ARGV[3]  not-after: the server time in µs after which this call must write nothing; 0 = unknown
-- ARGV[4]  traceparent of the acquiring span, '' = none
-- ARGV[5]  only with KEYS[3]: the client's entry while this owner waits: '<tag>' if a release may only wake the client;
--          '<tag> <trust time, ms> <traceparent, or '-'> <owner>' if a release may grant it the lock
-- ARGV[6]  the server time in µs when the client began to wait, or last got the lock; 0 = now
-- ARGV[7]  the entry that the client had before; '' = the same, or none
--
-- Returns  now                                                granted, and the time is the token
--          {1, now, token}                                    granted; the clock wasn't past the last token
--          {0, now, remaining ms, holder, its '@lockdog' or ''}  held by another
--          {2, now}                                           came too late, wrote nothing
--
-- Safe to run twice for one owner: the count is set, never raised, and the token rises again.
local hash = redis.call('hgetall', KEYS[1])
-- The mark of the lock, if this call takes it. A client with an entry doesn't look who else is in the set. Without '+'
-- the release wakes all.
local mark = KEYS[3] and '+'
local holder, meta, own
if #hash > 0 then
  holder, meta, own = holderOf(hash, ARGV[1])
  if string.byte(meta, 2) == fairMark then
    mark = '+~' -- a second run for one owner keeps the mark
  end
end
local tooLate = late(ARGV[3])
if #hash > 0 and not own then
  local alien = foreign(hash)
  if alien then
    return alien
  end
  local left = redis.call('pttl', KEYS[1])
  -- Without '@lockdog' it is a lock of Redisson's or a read-write lock, whose release doesn't read the wait set. If a
  -- write is refused (a full Redis, an ACL), the call goes on: the release then wakes all waiters.
  local seenMark, fair = string.byte(meta, 1, 2)
  if KEYS[3] and meta ~= '' and not tooLate
    and (seenMark == waitMark and fair ~= fairMark or not foreignSet(KEYS[3])) then
    local since = ARGV[6] == '0' and nowText or ARGV[6]
    if ARGV[7] ~= '' then
      redis.pcall('zrem', KEYS[3], ARGV[7])
    end
    if type(redis.pcall('zadd', KEYS[3], 'nx', since, ARGV[5])) == 'number' then
      redis.pcall('pexpire', KEYS[3], ARGV[2])
      if seenMark ~= waitMark then
        redis.pcall('hset', KEYS[1], '@lockdog', '+' .. meta)
      end
    end
  end
  return {0, now, left, holder, meta}
end
if tooLate then
  return {2, now}
end

local token = now
meta = nowText
if KEYS[2] then
  token, meta = draw(KEYS[2])
end

if ARGV[4] ~= '' then
  meta = meta .. ' ' .. ARGV[4]
end
if mark and not (mark == '+' and foreignSet(KEYS[3])) then
  meta = mark .. meta
end
redis.call('hset', KEYS[1], ARGV[1], '1', '@lockdog', meta)
local set = redis.pcall('pexpire', KEYS[1], ARGV[2])
if type(set) == 'table' then -- an ACL may forbid PEXPIRE, and a lock without an expiry would stay for ever
  redis.call('del', KEYS[1])
  return set
end
if KEYS[3] then -- the client waits no longer; its release may add an entry for its next waiter
  redis.pcall('zrem', KEYS[3], ARGV[5], ARGV[7])
end
if token == now then
  return now
end
return {1, now, token}
