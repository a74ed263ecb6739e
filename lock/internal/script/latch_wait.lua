-- Says whether a latch is open. It answers as those do that take a lock, so that it is waited for in the same way.
--
-- KEYS[1]  the latch: how often it has yet to be counted down; absent = open
-- ARGV     of no meaning here
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
