-- Takes permits of a semaphore without leases for one owner, if enough are left.
--
-- KEYS[1]   the semaphore: the number of permits that are left; absent = none
-- KEYS[2]   the owner's receipt: how many it took, or 'undone' (see unleased_undo.lua)
-- KEYS[3..] receipts that aren't needed any more: they are deleted
-- ARGV[1]   owner
-- ARGV[2]   lease, ms: not used
-- ARGV[3]   not-after: the server time in µs after which this call must write nothing; 0 = unknown
-- ARGV[4]   traceparent: not used
-- ARGV[5]   how many
-- ARGV[6]   how long the receipt is kept, ms
--
-- Returns  {1, now, 0, left, -1}  taken; left = how many permits are left
--          {0, now, -1, '', ''}   too few are left, or the owner's acquire was undone
--          {2, now}               came too late, wrote nothing
--
-- Safe to run twice for one owner, while the receipt is kept.
if late(ARGV[3]) then
  return {2, now}
end

local value = redis.call('get', KEYS[1])
if not value then
  redis.call('del', KEYS[1]) -- see inspect.lua
  value = '0'
end
if not isNumber(value) then
  return noNumber()
end
local left = tonumber(value)
local receipt = redis.call('get', KEYS[2])
local answer = {0, now, -1, '', ''}
if receipt then
  if receipt ~= 'undone' then
    answer = {1, now, 0, left, -1}
  end
elseif left >= tonumber(ARGV[5]) then
  redis.call('set', KEYS[2], ARGV[5], 'px', ARGV[6])
  left = redis.pcall('decrby', KEYS[1], ARGV[5])
  if type(left) == 'table' then -- refused, by an ACL, say
    redis.call('del', KEYS[2])
    return left
  end
  answer = {1, now, 0, left, -1}
end
if KEYS[3] then
  redis.pcall('del', unpack(KEYS, 3))
end
return answer
