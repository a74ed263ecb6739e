-- Returns whether a latch is open, as acquire.lua replies: so waiting for a latch is like waiting for a lock.
--
-- KEYS[1]  the latch: how many times it has yet to be counted down; absent = open
-- ARGV     not used
--
-- Returns  {1, now, 0}           open
--          {0, now, -1, '', ''}  closed
local count = redis.call('get', KEYS[1])
if not count then
  redis.call('del', KEYS[1]) -- see inspect.lua
  count = '0'
end
if not isNumber(count) then
  return noNumber()
end
if tonumber(count) > 0 then
  return {0, now, -1, '', ''}
end
return {1, now, 0}
