-- Takes one permit with a lease for one owner, if one is left. First gives back the permits whose lease has run out.
--
-- KEYS[1]  the number of permits that are left; absent = none
-- KEYS[2]  the permits that are taken: a sorted set of owner -> end of its lease, ms
-- KEYS[3]  the semaphore's token counter
-- ARGV[1]  owner, as 16 bytes
-- ARGV[2]  lease, ms
-- ARGV[3]  not-after: the server time in µs after which this call must write nothing; 0 = unknown
-- ARGV[4]  traceparent: not used, as a permit has no place for it
-- ARGV[5]  channel that waiters listen on
-- ARGV[6]  'publish', or 'spublish' where channels are sharded
--
-- Returns  {1, now, token, left, remaining}  granted; left = how many permits are left
--          {0, now, remaining, '', ''}       none is left
--          {2, now}                          came too late, wrote nothing
--          remaining = ms until the next lease runs out; -1 = no lease will run out
--
-- Safe to run twice for one owner: the owner has one permit, and the token rises again.
if late(ARGV[3]) then
  return {2, now}
end
local ms = math.floor(now / 1000)

local value = redis.call('get', KEYS[1])
if not value then
  redis.call('del', KEYS[1]) -- see inspect.lua
  value = '0'
end
if not isNumber(value) then
  return noNumber()
end
local left = tonumber(value)
local first, ends = firstPermit(KEYS[2])
if type(ends) == 'table' then
  return ends
end
local again = redis.call('zscore', KEYS[2], ARGV[1])
local over = {}
if first and ends <= ms then -- 100 at most: if there are more, remaining is 0, and a waiter asks again at once
  over = redis.call('zrangebyscore', KEYS[2], '-inf', string.format('%.0f', ms), 'limit', 0, 100)
end
for i = #over, 1, -1 do
  if over[i] == ARGV[1] then
    table.remove(over, i)
  end
end

local function remaining()
  local one, at = firstPermit(KEYS[2])
  if not one or at - ms > 1e12 then -- Redisson's mark of a permit without a lease
    return -1
  end
  return math.max(at - ms, 0)
end

-- take makes the changes, those that can be undone first. If it returns the error of a refused command, the permits are
-- as before.
local function take(mine)
  local function undo(refused)
    if again then
      redis.pcall('zadd', KEYS[2], again, ARGV[1])
    elseif mine then
      redis.pcall('zrem', KEYS[2], ARGV[1])
    end
    return refused
  end
  if #over > 0 then -- no such member: if ZREM is refused, the script fails before a permit changes
    redis.call('zrem', KEYS[2], '')
  end
  if mine then
    local ttl = redis.call('pttl', KEYS[1])
    local set = redis.pcall('zadd', KEYS[2], string.format('%.0f', ms + ARGV[2]), ARGV[1])
    if type(set) ~= 'table' and ttl > 0 then -- the program gave the semaphore an expiry: its permits get the same
      set = redis.pcall('pexpire', KEYS[2], ttl)
    end
    if type(set) == 'table' then
      return undo(set)
    end
  end
  local more = #over - ((again or not mine) and 0 or 1)
  local set = left
  if more == -1 then
    set = redis.pcall('decr', KEYS[1])
  elseif more > 0 then
    set = redis.pcall('incrby', KEYS[1], more)
  end
  if type(set) == 'table' then -- refused, by an ACL, say
    return undo(set)
  end
  left = set
  if #over > 0 then
    redis.call('zrem', KEYS[2], unpack(over))
  end
end

local mine = again or left + #over > 0
local token = mine and draw(KEYS[3])
local refused
if mine or #over > 0 then
  refused = take(mine)
end
if refused then
  return refused
end
if not mine then
  return {0, now, remaining(), '', ''}
end
local rest = -1
after(function() rest = remaining() end)
if #over > 0 and left > 0 then
  tell(ARGV[6], ARGV[5], left)
end
return {1, now, token, left, rest}
