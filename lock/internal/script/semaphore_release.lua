-- Releases one permit with a lease.
--
-- KEYS[1]  the number of permits that are left
-- KEYS[2]  the permits that are taken: a sorted set of owner -> end of its lease, ms
-- KEYS[3]  the semaphore's token counter: not used
-- ARGV[1]  owner, as 16 bytes
-- ARGV[2]  channel that waiters listen on
-- ARGV[3]  'publish', or 'spublish' where channels are sharded
--
-- Returns  {1, now}        released
--          {1, now, text}  released, but a step that follows was refused with that error
--          {0, now, 0}     not the owner's (any more)
if redis.call('zrem', KEYS[2], ARGV[1]) == 0 then
  return {0, now, 0}
end
local left, refused, _ = redis.pcall('incr', KEYS[1])
if type(left) == 'table' then
  -- Not a number, or forbidden by an ACL. The permit's lease is ended instead: the next acquire gives it back.
  refused = left.err
  redis.pcall('zadd', KEYS[2], string.format('%.0f', math.floor(now / 1000)), ARGV[1])
elseif left > 0 then
  _, refused = tell(ARGV[3], ARGV[2], left)
end
return refused and {1, now, refused} or {1, now}
