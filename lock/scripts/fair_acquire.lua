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
local patience = 300000

local ms = math.floor(now / 1000)

local hash = redis.call('hgetall', KEYS[1])
local holder, meta, ours = '', '', false
for i = 1, #hash, 2 do
  if hash[i] == '@lockdog' then
    meta = hash[i + 1]
  elseif hash[i] == ARGV[1] then
    ours = true
  elseif holder == '' and hash[i] ~= 'mode' then -- which is of a read-write lock
    holder = hash[i]
  end
end

if late(ARGV[3]) then
  return {2, now}
end

local function number(n) return string.format('%.0f', n) end

local function leave(waiter) -- one that is left in the list alone is dead
  redis.call('zrem', KEYS[4], waiter)
  redis.call('zrem', KEYS[5], waiter)
  redis.call('lrem', KEYS[3], 1, waiter)
end

-- The dead leave the head of the queue.
local head, place, cleared
repeat
  head = redis.call('lindex', KEYS[3], 0)
  place = head and tonumber(redis.call('zscore', KEYS[5], head) or redis.call('zscore', KEYS[4], head) or 0)
  local dead = head and head ~= ARGV[1] and place <= ms
  if dead then
    leave(head)
    cleared = true
  end
until not dead

if ours or #hash == 0 and (not head or head == ARGV[1]) then
  local waits = redis.call('zscore', KEYS[4], ARGV[1])
  local token
  token, meta = draw(KEYS[2])
  if ARGV[4] ~= '' then
    meta = meta .. ' ' .. ARGV[4]
  end
  redis.call('hset', KEYS[1], ARGV[1], 1, '@lockdog', meta)
  local set = redis.pcall('pexpire', KEYS[1], ARGV[2])
  if type(set) == 'table' then -- see acquire.lua
    redis.call('del', KEYS[1])
    return set
  end
  if waits then
    after(function() leave(ARGV[1]) end)
  end
  return {1, now, token}
end

local left = #hash > 0 and redis.call('pttl', KEYS[1])
local keep = tonumber(ARGV[5])
if keep > 0 then
  local known = redis.call('zscore', KEYS[4], ARGV[1])
  local refused = after(function()
    if not known then
      redis.call('rpush', KEYS[3], ARGV[1])
      redis.call('zadd', KEYS[4], 0, ARGV[1])
      redis.call('zadd', KEYS[5], 0, ARGV[1])
    end
    local before = 0
    if redis.call('zcard', KEYS[4]) > redis.call('zcard', KEYS[5]) then -- there are some of Redisson's
      for _, waiter in ipairs(redis.call('lrange', KEYS[3], 0, -1)) do
        if waiter == ARGV[1] then
          break
        elseif not redis.call('zscore', KEYS[5], waiter) then
          before = before + 1
        end
      end
    end
    if redis.call('pttl', KEYS[5]) < keep then -- past it nobody in it is alive
      redis.call('pexpire', KEYS[5], keep)
    end
    redis.call('zadd', KEYS[4], number(ms + before * patience + keep), ARGV[1])
    redis.call('zadd', KEYS[5], number(ms + keep), ARGV[1])
  end)
  if refused then
    if not known then
      redis.pcall('zrem', KEYS[4], ARGV[1])
      redis.pcall('zrem', KEYS[5], ARGV[1])
      redis.pcall('lrem', KEYS[3], 1, ARGV[1])
    end
    return redis.error_reply(refused)
  end
end

if #hash > 0 then
  return {0, now, left, holder, meta}
end
if cleared then -- nobody has told it
  tell(ARGV[7], ARGV[6] .. ':' .. head, '0')
end
return {0, now, place - ms, '', ''}
