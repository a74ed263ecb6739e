-- Gives back what an acquire may have taken although nobody got to know, and has it take nothing any more.
--
-- KEYS[1]   the semaphore
-- KEYS[2]   the owner's receipt
-- KEYS[3..] receipts that nobody will ask for any more
-- ARGV[1]   owner
-- ARGV[2]   channel that waiters listen on
-- ARGV[3]   'publish', or 'spublish' where channels are sharded
-- ARGV[4]   how long the receipt is kept, ms
--
-- Returns  {1, now}     given back
--          {0, now, 0}  there was nothing to give back
--
-- Safe to run twice: the receipt says that it has been done.
local taken = tonumber(redis.call('get', KEYS[2]) or 0)
-- A Redis that is full refuses SET and INCRBY, but not after a DEL in the same script.
redis.call('del', KEYS[2], unpack(KEYS, 3))
redis.call('set', KEYS[2], 'undone', 'px', ARGV[4])
if not taken or taken == 0 then
  return {0, now, 0}
end
local left = redis.call('incrby', KEYS[1], taken)
if left > 0 then
  redis.call(ARGV[3], ARGV[2], left)
end
return {1, now}
