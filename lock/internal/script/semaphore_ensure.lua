-- Sets the total number of permits of a semaphore with leases, those that are held included. once.lua describes the
-- other KEYS, the other ARGV and the replies.
--
-- KEYS[3]  the permits that are taken: a sorted set of owner -> end of its lease, ms
-- ARGV[6]  the total number
--
-- A permit whose lease has run out stays in KEYS[3] until the next acquire gives it back. So it counts as taken here,
-- but as available in the published number, as in count.lua.
local _, alien = firstPermit(KEYS[3])
if type(alien) == 'table' then
  return alien
end
local delta = ARGV[6] - redis.call('zcount', KEYS[3], '-inf', '+inf') - (value or 0)
return (add(delta, 4, function(left)
  left = left + redis.call('zcount', KEYS[3], '-inf', string.format('%.0f', math.floor(now / 1000)))
  return left > 0 and delta > 0 and left
end))
