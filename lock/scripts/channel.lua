-- The channel on which the lock's waiters listen, named as Redisson names what belongs to a key.
local tagged = string.find(KEYS[1], '{', 1, true) and KEYS[1] or '{' .. KEYS[1] .. '}'
local channel = 'redisson_lock__channel:' .. tagged
