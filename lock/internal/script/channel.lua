-- tagged returns a name in the lock's slot, as Redisson builds it: 'channels' is the prefix of the channel of a lock's
-- waiters.
local channels = 'redisson_lock__channel:'
local function tagged(prefix, key)
  return string.find(key, '{', 1, true) and prefix .. key or prefix .. '{' .. key .. '}'
end
