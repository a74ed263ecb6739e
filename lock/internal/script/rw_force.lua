-- Takes a read-write lock away from all who hold it, wakes the waiters and tells the holders. The keys are those of rw.lua.
--
-- ARGV[1]  channel that waiters listen on
-- ARGV[2]  'publish', or 'spublish' where channels are sharded
-- ARGV[3]  prefix of the control channels; a holder of ours listens on prefix .. owner less its '-<seq>' and ':write'
-- ARGV[4]  the client that does this, for the holder to hear of
--
-- Returns  as force.lua. Running it twice is harmless.
local seen = look('', true)
if seen.alien then
  return seen.alien
elseif not seen.mode then
  redis.call('del', KEYS[1]) -- see inspect.lua
  return 0
end
local fields = redis.call('hgetall', KEYS[1])
redis.call('del', KEYS[1])
local refused = gone(ARGV[2], ARGV[1])
local held = {1, false}
for i = 1, #fields, 2 do
  local owner = fields[i]
  local client = string.match(owner, '^(.+)%-%d+$') or string.match(owner, '^(.+)%-%d+:write$')
  if client then
    redis.pcall('del', mark(owner, 1))
  end
  refused = tellForced(held, owner, client) or refused
end
held[2] = refused or false
return held
