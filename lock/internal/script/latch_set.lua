-- Closes a latch: it has yet to be counted down so often. Once for one owner, and only if it is open.
--
-- KEYS[1]   the latch; absent = open
-- KEYS[2]   the owner's receipt
-- KEYS[3..] receipts that nobody will ask for any more
-- ARGV[1]   owner
-- ARGV[2]   channel that waiters listen on
-- ARGV[3]   'publish', or 'spublish' where channels are sharded
-- ARGV[4]   not-after: the server time in µs after which this call must write nothing; 0 = unknown
-- ARGV[5]   how long the receipt is kept, ms
-- ARGV[6]   how often
--
-- Returns  {1, now}     done, by this call or an earlier one
--          {0, now, 0}  it is closed already
--          {3, now}     came too late, wrote nothing
if redis.call('exists', KEYS[2]) == 1 then
  return {1, now}
end
if late(ARGV[4]) then
  return {3, now}
end
local count = redis.call('get', KEYS[1]) or '0'
if not isNumber(count) then
  return noNumber()
end
if tonumber(count) > 0 then
  return {0, now, 0}
end
redis.call('set', KEYS[2], '1', 'px', ARGV[5])
redis.call('set', KEYS[1], ARGV[6])
local _, refused = tell(ARGV[3], ARGV[2], '1')
if refused then -- an ACL forbids it: what is refused isn't done
  redis.call('del', KEYS[1], KEYS[2])
  return redis.error_reply(refused)
end
if KEYS[3] then
  redis.pcall('del', unpack(KEYS, 3))
end
return {1, now}
