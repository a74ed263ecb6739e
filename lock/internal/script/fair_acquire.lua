-- Takes a free lock for one owner if no waiter is before it. Otherwise enters the queue, or keeps its place there,
-- unless ARGV[5] is 0, and returns the lock's holder.
--
-- KEYS[1]  the lock: as for acquire.lua
-- KEYS[2]  the lock's token counter
-- KEYS[3]  the queue: a list of owners
-- KEYS[4]  Redisson's deadlines: a sorted set of owner -> ms
-- KEYS[5]  until when each waiter of ours counts as alive: a sorted set of owner -> ms
-- ARGV[1]  owner
-- ARGV[2]  lease, ms
-- ARGV[3]  not-after: the server time in µs after which this call must write nothing; 0 = unknown
-- ARGV[4]  traceparent of the acquiring span, '' = none
-- ARGV[5]  how long its place in the queue lasts without another call, ms; 0 = it doesn't wait
-- ARGV[6]  the lock's channel; a waiter in the queue listens on that .. ':<owner>'
-- ARGV[7]  'publish', or 'spublish' where channels are sharded
--
-- Returns  as acquire.lua, but never a bare now. If the lock is free but another waiter is before the owner, the holder
--          is '' and the remaining time is that of the waiter's place
--
-- Redisson doesn't know KEYS[5]. It removes a waiter whose deadline in KEYS[4] has passed, and at each grant to a
-- waiter of its own it subtracts 300 s from all deadlines. So the deadline of a waiter of ours has 300 s extra for each
-- waiter of Redisson's before it.
--
-- With the mark '+~', any script of ours that frees the lock looks at the queue. A grant by this script has the mark
-- from the start. A lock that a Mutex or a Multi holds gets the mark when a waiter of ours enters the queue.
local patience = 300000

local ms = math.floor(now / 1000)
local queue = {waiters = KEYS[3], deadlines = KEYS[4], alive = KEYS[5]}

local hash = redis.call('hgetall', KEYS[1])
local holder, meta, own = holderOf(hash, ARGV[1])

local alien = #hash > 0 and not own and foreign(hash)
if alien then
  return alien
end
if late(ARGV[3]) then
  return {2, now}
end

local function number(n) return string.format('%.0f', n) end

local head, place, cleared = first(queue, ms, ARGV[1])

if own or #hash == 0 and (not head or head == ARGV[1]) then
  -- An owner that isn't known has nothing to remove: it never waited, it has the lock already, its place was removed
  -- when it counted as dead, or the queue was lost.
  local known = head == ARGV[1] or redis.call('zscore', queue.alive, ARGV[1])
  local token
  token, meta = draw(KEYS[2])
  if ARGV[4] ~= '' then
    meta = meta .. ' ' .. ARGV[4]
  end
  redis.call('hset', KEYS[1], ARGV[1], 1, '@lockdog', '+~' .. meta)
  local set = redis.pcall('pexpire', KEYS[1], ARGV[2])
  if type(set) == 'table' then -- see acquire.lua
    redis.call('del', KEYS[1])
    return set
  end
  if known then
    after(function()
      leave(queue, ARGV[1])
      restore(queue)
    end)
  end
  return {1, now, token}
end

local left = #hash > 0 and redis.call('pttl', KEYS[1])
local keep = tonumber(ARGV[5])
if keep > 0 then
  local known = redis.call('zscore', queue.deadlines, ARGV[1])
  -- Dead waiters of ours are removed anywhere in the queue, 16 per call at most: LREM reads the queue.
  local dead = redis.call('zrangebyscore', queue.alive, '-inf', ms, 'limit', 0, 16)
  if not known then
    for _, key in ipairs({queue.deadlines, queue.alive}) do
      checkWaiter(redis.call('zrange', key, 0, 0)[1])
    end
  end
  local before = 0
  -- The list is read only if there are more deadlines than live waiters of ours: the other deadlines are of Redisson's
  -- waiters, or of dead ones. Dead waiters of ours aren't counted: Redisson may have removed such a waiter, which then
  -- has no deadline but is still in queue.alive. Counting it would hide a waiter of Redisson's.
  if redis.call('zcard', queue.deadlines) > redis.call('zcount', queue.alive, '(' .. number(ms), '+inf') then
    for _, waiter in ipairs(redis.call('lrange', queue.waiters, 0, -1)) do
      if waiter == ARGV[1] then
        break
      elseif not redis.call('zscore', queue.alive, waiter) then
        before = before + 1
      end
    end
  end
  local refused = after(function()
    for _, waiter in ipairs(dead) do
      if waiter ~= ARGV[1] then
        leave(queue, waiter)
      end
    end
    if not known then
      redis.call('rpush', queue.waiters, ARGV[1])
      redis.call('zadd', queue.deadlines, 0, ARGV[1])
      redis.call('zadd', queue.alive, 0, ARGV[1])
    end
    local lasts = before * patience + keep
    -- If queue.alive expired too early, this waiter would count as alive until its deadline for Redisson: see first.
    -- So queue.alive lives at least until that deadline.
    if redis.call('pttl', queue.alive) < lasts then
      redis.call('pexpire', queue.alive, lasts)
    end
    redis.call('zadd', queue.deadlines, number(ms + lasts), ARGV[1])
    redis.call('zadd', queue.alive, number(ms + keep), ARGV[1])
  end)
  if refused then
    if not known then
      redis.pcall('zrem', queue.deadlines, ARGV[1])
      redis.pcall('zrem', queue.alive, ARGV[1])
      redis.pcall('lrem', queue.waiters, 1, ARGV[1])
    end
    return redis.error_reply(refused)
  end
  lengthen(queue, ms)
  -- If the mark is refused (by an ACL), the call goes on: the waiter asks again.
  if meta ~= '' and string.byte(meta, 2) ~= fairMark then
    redis.pcall('hset', KEYS[1], '@lockdog', '+~' .. (string.byte(meta) == waitMark and string.sub(meta, 2) or meta))
  end
end

if #hash > 0 then
  return {0, now, left, holder, meta}
end
if cleared then -- the new head wasn't notified
  callUp(queue, ms, ARGV[7], ARGV[6])
end
return {0, now, place - ms, '', ''}
