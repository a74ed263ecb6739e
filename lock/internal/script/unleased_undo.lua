-- Undoes an acquire, such as one whose reply was lost: gives back the permits that it took. If the acquire reaches
-- Redis later, it takes none.
--
-- KEYS[1]   the semaphore
-- KEYS[2]   the owner's receipt
-- KEYS[3..] receipts that aren't needed any more: they are deleted
-- ARGV[1]   owner
-- ARGV[2]   channel that waiters listen on
-- ARGV[3]   'publish', or 'spublish' where channels are sharded
-- ARGV[4]   how long the receipt is kept, ms
--
-- Returns  {1, now}        given back
--          {1, now, text}  given back, but the message was refused with that error
--          {0, now, 0}     there was nothing to give back
--
-- Safe to run twice: the receipt is 'undone' then.
local taken = tonumber(redis.call('get', KEYS[2]) or 0)
-- A full Redis refuses SET and INCRBY, but not after a PEXPIRE in the same script.
redis.call('pexpire', KEYS[2], ARGV[4])
local left = taken and taken > 0 and redis.pcall('incrby', KEYS[1], taken)
if type(left) == 'table' then -- not a number, or forbidden by an ACL
  return left
end
local set = redis.pcall('set', KEYS[2], 'undone', 'px', ARGV[4])
if type(set) == 'table' and set.err then
  if left then
    redis.call('incrby', KEYS[1], -taken)
  end
  return set
end
if KEYS[3] then
  redis.pcall('del', unpack(KEYS, 3))
end
if not left then
  return {0, now, 0}
end
if left > 0 then
  local _, refused = tell(ARGV[3], ARGV[2], left)
  if refused then
    return {1, now, refused}
  end
end
return {1, now}
