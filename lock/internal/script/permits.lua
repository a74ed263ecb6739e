-- firstPermit returns the permit whose lease ends first, and the end, ms; nil if no permit is taken. A permit has 16
-- bytes. If the first member has another length, the sorted set is another program's, and isn't changed: the second
-- result is then an error.
local function firstPermit(permits)
  local first = redis.call('zrange', permits, 0, 0, 'withscores')
  if first[1] and #first[1] ~= 16 then
    return nil, redis.error_reply('WRONGTYPE The key beside it holds a sorted set that has no permits')
  end
  return first[1], tonumber(first[2])
end
