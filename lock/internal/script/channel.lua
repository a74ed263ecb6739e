-- tagged names what belongs to a lock, so that it is in the lock's slot: as Redisson does, such as the channel on which the waiters listen.
local channels = 'redisson_lock__channel:'
local function tagged(prefix, key)
  return string.find(key, '{', 1, true) and prefix .. key or prefix .. '{' .. key .. '}'
end
