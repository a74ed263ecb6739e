-- Reads the number of a semaphore or a latch. A script, not a plain read: see inspect.lua.
--
-- KEYS[1]  the number; absent = 0
-- KEYS[2]  of a semaphore with leases: the permits that are taken, by the end of their lease, ms. Those whose lease has
--          run out are added to the number, because the next acquire gives them back
-- ARGV[1]  'total': all permits that are taken are added
--
-- Returns  the number
local n = redis.call('get', KEYS[1])
if not n then
  redis.call('del', KEYS[1]) -- see inspect.lua
  n = '0'
end
if not isNumber(n) then
  return noNumber()
end
n = tonumber(n)
if KEYS[2] then
  local _, alien = firstPermit(KEYS[2])
  if type(alien) == 'table' then
    return alien
  end
  local last = '+inf'
  if ARGV[1] ~= 'total' then
    local time = redis.call('time')
    last = string.format('%.0f', time[1] * 1000 + math.floor(time[2] / 1000))
  end
  n = n + redis.call('zcount', KEYS[2], '-inf', last)
end
return n
