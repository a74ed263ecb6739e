-- Deletes a read-write lock, wakes the waiters and notifies the holders. rw.lua describes KEYS.
--
-- ARGV[1]  channel that waiters listen on
-- ARGV[2]  'publish', or 'spublish' where channels are sharded
-- ARGV[3]  prefix of the control channels; a holder of ours listens on prefix .. owner without '-<seq>' and ':write'
-- ARGV[4]  the calling client, to be named to the holders
--
-- Returns  as force.lua.
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
