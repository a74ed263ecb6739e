-- Takes a free lock for one owner if nobody waits before it, or puts the owner into the queue and says who holds the lock.
--
-- KEYS[1]  the lock: as for acquire.lua
-- KEYS[2]  the token counter of the lock's slot
-- KEYS[3]  the queue: a list of owners
-- KEYS[4]  Redisson's deadlines: a sorted set of owner -> ms
-- KEYS[5]  until when a waiter of ours is taken to be alive: a sorted set of owner -> ms
-- ARGV[1]  owner
-- ARGV[2]  lease, ms
-- ARGV[3]  not-after: the server time in µs after which this call must write nothing; 0 = unknown
-- ARGV[4]  traceparent of the acquiring span, '' = none
-- ARGV[5]  for how many ms its place in the queue is kept unless it asks again; 0 = it doesn't wait
-- ARGV[6]  channel that the next in the queue listens on, less ':<owner>'
-- ARGV[7]  'publish', or 'spublish' where channels are sharded
--
-- Returns  as acquire.lua; of a lock that is free but somebody else's turn, the holder is '' and the remaining
--          time that of the other's place.
--
-- Redisson knows KEYS[4] only, by which a waiter leaves the queue when its deadline is past; and each grant to a
-- waiter of its own brings all deadlines forward by 300 s. So ours have as many times 300 s more than they need as
-- there are waiters of Redisson's before them.
--
-- A holder that a waiter of ours sees gets '+~' before its token: whichever script frees the lock then looks at the queue. A grant of this
-- script has it from the start. It comes after clock.lua, token.lua, holder.lua, marks.lua, after.lua, tell.lua, fair_queue.lua and fair_expiry.lua.
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
  local known = head == ARGV[1] or redis.call('zscore', queue.alive, ARGV[1]) -- it is in neither where Redisson took it out, or the queue was lost
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
  -- Those of ours that died leave wherever they stand, some at each question: lrem takes as long as the queue is.
  local dead = redis.call('zrangebyscore', queue.alive, '-inf', ms, 'limit', 0, 16)
  if not known then
    for _, key in ipairs({queue.deadlines, queue.alive}) do
      checkWaiter(redis.call('zrange', key, 0, 0)[1])
    end
  end
  local before = 0
  -- The list is read only if there are more deadlines than live waiters of ours: the others are of Redisson's waiters, or of dead ones. The dead
  -- must not be counted as ours: one that Redisson removed has no deadline any more but is still in queue.alive, and would hide one of Redisson's.
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
    if redis.call('pttl', queue.alive) < keep then -- past it nobody in it is alive
      redis.call('pexpire', queue.alive, keep)
    end
    redis.call('zadd', queue.deadlines, number(ms + before * patience + keep), ARGV[1])
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
  if meta ~= '' and string.byte(meta, 2) ~= fairMark then -- that this is refused (a full Redis) is no reason to fail: it asks again
    redis.pcall('hset', KEYS[1], '@lockdog', '+~' .. (string.byte(meta) == waitMark and string.sub(meta, 2) or meta))
  end
end

if #hash > 0 then
  return {0, now, left, holder, meta}
end
if cleared then -- nobody has told it
  tell(ARGV[7], ARGV[6] .. ':' .. head, '0')
end
return {0, now, place - ms, '', ''}
