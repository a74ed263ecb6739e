-- tagged joins a prefix and the key of a lock into a name in the lock's slot, as Redisson does. channels is the prefix
-- of what Channel in keys.go returns.
local channels = 'redisson_lock__channel:'
local function tagged(prefix, key)
  return string.find(key, '{', 1, true) and prefix .. key or prefix .. '{' .. key .. '}'
end
