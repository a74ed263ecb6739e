-- Takes the lock away from whoever holds it, wakes the waiters and tells the holder.
--
-- KEYS[1]  the lock
-- ARGV[1]  channel that waiters listen on
-- ARGV[2]  'publish', or 'spublish' where channels are sharded
-- ARGV[3]  prefix of the control channels; a holder of ours listens on prefix .. owner less its '-<seq>'
--
-- Returns  1 the lock was held, 0 it was free; {1, text} it was held, and a message was refused with that error. Running it twice is harmless.
local fields = redis.call('hkeys', KEYS[1])
if redis.call('del', KEYS[1]) == 0 then
  return 0
end
local _, refused = tell(ARGV[2], ARGV[1], '0')
for _, owner in ipairs(fields) do
  local client = string.match(owner, '^(.+)%-%d+$')
  if client then
    local _, unheard = tell('publish', ARGV[3] .. client, owner)
    refused = refused or unheard
  end
end
if refused then
  return {1, refused}
end
return 1
