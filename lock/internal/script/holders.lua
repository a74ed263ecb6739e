-- Returns the owners in the hash of a lock. Those of a read-write lock may include a holder whose lease has run out. A
-- script, not a plain read: see inspect.lua.
--
-- KEYS[1]  the lock
-- ARGV[1]  the largest number of owners to return; if there are more, none is returned
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
