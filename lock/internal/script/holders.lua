-- Says who is in the hash of a lock. Of a read-write lock they may include a holder whose lease has run out. A script, not plain reads: go-redis may
-- send those to replicas.
--
-- KEYS[1]  the lock
-- ARGV[1]  of how many holders at most; of more it names none
--
-- Returns  {'read' or 'write' for a read-write lock and '' for any other, owner...}
local mode = redis.call('hget', KEYS[1], 'mode') or ''
local out = {mode}
if redis.call('hlen', KEYS[1]) > ARGV[1] + 2 then
  return out
end
for _, field in ipairs(redis.call('hkeys', KEYS[1])) do
  if field ~= 'mode' and field ~= '@lockdog' then
    out[#out + 1] = field
  end
end
if #out > ARGV[1] + 1 then
  return {mode}
end
return out
