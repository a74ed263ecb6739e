-- Takes the lock away from whoever holds it, wakes the next in the queue and tells the holder.
--
-- KEYS     as for fair_release.lua
-- ARGV[1]  channel that the next in the queue listens on, less ':<owner>'
-- ARGV[2]  'publish', or 'spublish' where channels are sharded
-- ARGV[3]  prefix of the control channels; a holder of ours listens on prefix .. owner less its '-<seq>'
--
-- Returns  as force.lua. Running it twice is harmless.
local fields = redis.call('hkeys', KEYS[1])
if redis.call('del', KEYS[1]) == 0 then
  return 0
end
local refused
local head = redis.pcall('lindex', KEYS[3], 0)
if type(head) == 'table' then
  refused = head.err
elseif head then -- if it is dead, the next to ask finds out
  local _, unheard = tell(ARGV[2], ARGV[1] .. ':' .. head, '0')
  refused = unheard
end
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
