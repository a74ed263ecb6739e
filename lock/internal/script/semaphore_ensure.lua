-- Sets how many permits a semaphore with leases has in all, those that are held included, whatever that was before. Once for one owner.
--
-- KEYS[1]   the semaphore: the number of permits that are left; absent = none
-- KEYS[2]   the owner's receipt
-- KEYS[3]   the permits that are taken: a sorted set of owner -> end of its lease, ms
-- KEYS[4..] receipts that nobody will ask for any more
-- ARGV[1]   owner
-- ARGV[2]   channel that waiters listen on
-- ARGV[3]   'publish', or 'spublish' where channels are sharded
-- ARGV[4]   not-after: the server time in µs after which this call must write nothing; 0 = unknown
-- ARGV[5]   how long the receipt is kept, ms
-- ARGV[6]   how many in all
--
-- Returns  {1, now}  done, by this call or an earlier one
--          {3, now}  came too late, wrote nothing
--
-- A permit whose lease has run out stays among those that are taken until the next acquire gives it back. So it counts as taken here, and as
-- available to everybody who asks how many are.
if redis.call('exists', KEYS[2]) == 1 then
  return {1, now}
end
if late(ARGV[4]) then
  return {3, now}
end
local value = redis.call('get', KEYS[1])
if value and not isNumber(value) then
  return noNumber()
end
local _, alien = firstPermit(KEYS[3])
if type(alien) == 'table' then
  return alien
end
local taken = redis.call('zcount', KEYS[3], '-inf', '+inf')
local delta = ARGV[6] - taken - (value or 0)
local spent = {KEYS[2], unpack(KEYS, 4)}
-- A Redis that is full refuses SET and INCRBY, but not after a DEL in the same script.
redis.call('del', unpack(spent))
redis.call('set', KEYS[2], '1', 'px', ARGV[5])
if value and delta == 0 then
  return {1, now}
end
local left = redis.pcall('incrby', KEYS[1], string.format('%.0f', delta)) -- not SET, which would end an expiry that somebody gave it
if type(left) == 'table' then -- an ACL may forbid it
  redis.call('del', KEYS[2])
  return left
end
left = left + redis.call('zcount', KEYS[3], '-inf', string.format('%.0f', math.floor(now / 1000)))
if left > 0 and delta > 0 then
  local _, refused = tell(ARGV[3], ARGV[2], left)
  if refused then -- an ACL forbids it: what is refused isn't done
    if value then
      redis.call('incrby', KEYS[1], string.format('%.0f', -delta))
    else
      redis.call('del', KEYS[1])
    end
    redis.call('del', KEYS[2])
    return redis.error_reply(refused)
  end
end
return {1, now}
