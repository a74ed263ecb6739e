-- Returns the holder of the lock. A script, not a plain read: with ReadOnly or RouteByLatency go-redis sends reads to
-- replicas, and a replica may be behind.
--
-- KEYS[1]  the lock
--
-- Returns  {now, remaining ms (-2 free, -1 no expiry), field, value, ...} of the lock's hash
local left = redis.call('pttl', KEYS[1])
if left == -2 then
  redis.call('del', KEYS[1]) -- changes nothing, but fails at a replica, which may lack what its primary has
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
