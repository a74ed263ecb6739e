-- Takes the lock away from whoever holds it, wakes the next in the queue and tells the holder.
--
-- KEYS     as for fair_release.lua
-- ARGV[1]  channel that the next in the queue listens on, less ':<owner>'
-- ARGV[2]  'publish', or 'spublish' where channels are sharded
-- ARGV[3]  prefix of the control channels; a holder of ours listens on prefix .. owner less its '-<seq>'
--
-- Returns  1 the lock was held, 0 it was free. Running it twice is harmless.
local fields = redis.call('hkeys', KEYS[1])
if redis.call('del', KEYS[1]) == 0 then
  return 0
end
local head = redis.call('lindex', KEYS[3], 0)
if head then -- if it is dead, the next to ask finds out
  redis.call(ARGV[2], ARGV[1] .. ':' .. head, '0')
end
for _, owner in ipairs(fields) do
  local client = string.match(owner, '^(.+)%-%d+$')
  if client then
    redis.call('publish', ARGV[3] .. client, owner)
  end
end
return 1
