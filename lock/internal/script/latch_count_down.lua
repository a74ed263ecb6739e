-- Counts a latch down, once for one owner. At 0 it is open, and gone.
--
-- KEYS[1]   the latch; absent = open, and stays so
-- KEYS[2]   the owner's receipt
-- KEYS[3..] receipts that nobody will ask for any more
-- ARGV[1]   owner
-- ARGV[2]   channel that waiters listen on
-- ARGV[3]   'publish', or 'spublish' where channels are sharded
-- ARGV[4]   not-after: the server time in µs after which this call must write nothing; 0 = unknown
-- ARGV[5]   how long the receipt is kept, ms
--
-- Returns  {1, now}  done, by this call or an earlier one
--          {3, now}  came too late, wrote nothing
if redis.call('exists', KEYS[2]) == 1 then
  return {1, now}
end
if late(ARGV[4]) then
  return {3, now}
end
local closed = redis.call('get', KEYS[1])
if closed and not isNumber(closed) then
  return noNumber()
end
-- A Redis that is full refuses SET and DECR, but not after a DEL in the same script.
redis.call('del', KEYS[2], unpack(KEYS, 3))
redis.call('set', KEYS[2], '1', 'px', ARGV[5]) -- also of an open latch: it may be set before this is repeated
if closed then
  local left = redis.pcall('decr', KEYS[1])
  if type(left) == 'table' then -- an ACL may forbid it
    redis.call('del', KEYS[2])
    return left
  end
  if left <= 0 then
    local _, refused = tell(ARGV[3], ARGV[2], '0')
    if refused then -- an ACL forbids it: what is refused isn't done
      redis.call('set', KEYS[1], left + 1, 'keepttl')
      redis.call('del', KEYS[2])
      return redis.error_reply(refused)
    end
    redis.call('del', KEYS[1])
  end
end
return {1, now}
