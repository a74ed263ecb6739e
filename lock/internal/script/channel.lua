-- tagged joins a prefix and the key of a lock to a name in the lock's slot, as Redisson does. channels is the prefix of
-- the channels on which releases are published.
local channels = 'redisson_lock__channel:'
local function tagged(prefix, key)
  return string.find(key, '{', 1, true) and prefix .. key or prefix .. '{' .. key .. '}'
end
