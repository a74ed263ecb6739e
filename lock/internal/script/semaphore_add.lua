-- Adds permits to a semaphore, or removes some. once.lua describes KEYS, the other ARGV and the replies.
--
-- ARGV[6]  how many; negative = to remove, even if fewer are left: the number may become negative
local delta, before, most = tonumber(ARGV[6]), tonumber(value or 0), 2147483647 -- Redisson's numbers are no larger
local sum = before + delta
if sum > most and sum > before or sum < -most and sum < before then
  return redis.error_reply('ERR the number of permits would be out of range')
end
return (add(delta, 3, function(left) return left > 0 and delta > 0 and left end))
