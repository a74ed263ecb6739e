-- firstPermit returns the permit of a semaphore whose lease ends first, and when, ms; nil if none is taken. All have names of 16 bytes: what has
-- others is somebody else's, and left alone. The second result is then an error.
local function firstPermit(permits)
  local first = redis.call('zrange', permits, 0, 0, 'withscores')
  if first[1] and #first[1] ~= 16 then
    return nil, redis.error_reply('WRONGTYPE The key beside it holds a sorted set that has no permits')
  end
  return first[1], tonumber(first[2])
end
