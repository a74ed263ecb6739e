-- Says who holds the lock. A script, not plain reads: go-redis sends read-only commands to replicas
-- under ReadOnly or RouteByLatency, and a replica may be behind.
--
-- KEYS[1]  the lock
--
-- Returns  {now, remaining ms (-2 free, -1 no expiry), fields and values of the hash...}. It comes after clock.lua, owner.lua and foreign.lua.
local left = redis.call('pttl', KEYS[1])
if left == -2 then
  redis.call('del', KEYS[1]) -- nothing; refused by a replica, which may lack what its primary has
end
local hash = redis.call('hgetall', KEYS[1])
local alien = #hash > 0 and foreign(hash)
if alien then
  return alien
end
local out = {now, left}
for i, v in ipairs(hash) do
  out[i + 2] = v
end
return out
