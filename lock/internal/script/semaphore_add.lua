-- Adds permits to a semaphore, or takes some away, once for one owner.
--
-- KEYS[1]   the semaphore: the number of permits that are left; absent = none
-- KEYS[2]   the owner's receipt
-- KEYS[3..] receipts that nobody will ask for any more
-- ARGV[1]   owner
-- ARGV[2]   channel that waiters listen on
-- ARGV[3]   'publish', or 'spublish' where channels are sharded
-- ARGV[4]   not-after: the server time in µs after which this call must write nothing; 0 = unknown
-- ARGV[5]   how long the receipt is kept, ms
-- ARGV[6]   how many; negative: to be taken away, even if so many aren't left
--
-- Returns  {1, now}  done, by this call or an earlier one
--          {3, now}  came too late, wrote nothing
if redis.call('exists', KEYS[2]) == 1 then
  return {1, now}
end
if late(ARGV[4]) then
  return {3, now}
end
local value = redis.call('get', KEYS[1]) or '0'
if not isNumber(value) then
  return noNumber()
end
local sum, most = value + ARGV[6], 2147483647 -- Redisson's numbers are no larger
if sum > most and sum > tonumber(value) or sum < -most and sum < tonumber(value) then
  return redis.error_reply('ERR the number of permits would be out of range')
end
-- A Redis that is full refuses SET and INCRBY, but not after a DEL in the same script.
redis.call('del', KEYS[2], unpack(KEYS, 3))
redis.call('set', KEYS[2], '1', 'px', ARGV[5])
local left = redis.pcall('incrby', KEYS[1], ARGV[6])
if type(left) == 'table' then -- an ACL may forbid it
  redis.call('del', KEYS[2])
  return left
end
if left > 0 and tonumber(ARGV[6]) > 0 then
  local _, refused = tell(ARGV[3], ARGV[2], left)
  if refused then -- an ACL forbids it: what is refused isn't done
    redis.call('incrby', KEYS[1], '-' .. ARGV[6])
    redis.call('del', KEYS[2])
    return redis.error_reply(refused)
  end
end
return {1, now}
