-- Counts a latch down. At 0 it is open, and its key is deleted. once.lua describes KEYS, ARGV and the replies.
if not value then
  keepReceipt(3) -- the latch is open; it may be set before this call is repeated
  return {1, now}
end
local reply, left = add(-1, 3, function(left) return left <= 0 and '0' end)
if left and left <= 0 then
  redis.call('del', KEYS[1])
end
return reply
