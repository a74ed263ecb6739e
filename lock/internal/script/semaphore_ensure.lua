-- Sets how many permits a semaphore with leases has in all, those that are held included, whatever that was before. It comes after once.lua, which
-- has the other KEYS, the other ARGV and the replies.
--
-- KEYS[3]  the permits that are taken: a sorted set of owner -> end of its lease, ms
-- ARGV[6]  how many in all
--
-- A permit whose lease has run out stays among those that are taken until the next acquire gives it back. So it counts as taken here, and as
-- available to everybody who asks how many are.
local _, alien = firstPermit(KEYS[3])
if type(alien) == 'table' then
  return alien
end
local delta = ARGV[6] - redis.call('zcount', KEYS[3], '-inf', '+inf') - (value or 0)
return (add(delta, 4, function(left)
  left = left + redis.call('zcount', KEYS[3], '-inf', string.format('%.0f', math.floor(now / 1000)))
  return left > 0 and delta > 0 and left
end))
