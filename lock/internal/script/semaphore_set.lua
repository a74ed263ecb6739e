-- Gives a semaphore its permits, unless it has a number of them, be it 0. Once for one owner.
--
-- KEYS[1]   the semaphore
-- KEYS[2]   the owner's receipt
-- KEYS[3..] receipts that nobody will ask for any more
-- ARGV[1]   owner
-- ARGV[2]   channel that waiters listen on
-- ARGV[3]   'publish', or 'spublish' where channels are sharded
-- ARGV[4]   not-after: the server time in µs after which this call must write nothing; 0 = unknown
-- ARGV[5]   how long the receipt is kept, ms
-- ARGV[6]   how many
--
-- Returns  {1, now}     done, by this call or an earlier one
--          {0, now, 0}  it has a number already
--          {3, now}     came too late, wrote nothing
if redis.call('exists', KEYS[2]) == 1 then
  return {1, now}
end
if late(ARGV[4]) then
  return {3, now}
end
local value = redis.call('get', KEYS[1])
if value then
  return isNumber(value) and {0, now, 0} or noNumber()
end
redis.call('set', KEYS[2], '1', 'px', ARGV[5])
redis.call('set', KEYS[1], ARGV[6])
if tonumber(ARGV[6]) > 0 then
  local _, refused = tell(ARGV[3], ARGV[2], ARGV[6])
  if refused then -- an ACL forbids it: what is refused isn't done
    redis.call('del', KEYS[1], KEYS[2])
    return redis.error_reply(refused)
  end
end
if KEYS[3] then
  redis.pcall('del', unpack(KEYS, 3))
end
return {1, now}
