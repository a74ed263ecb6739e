-- Counts a latch down. At 0 it is open, and gone. It comes after once.lua, which has the KEYS, the ARGV and the replies.
if not value then
  keepReceipt(3) -- it is open, and may be set before this is repeated
  return {1, now}
end
local reply, left = add(-1, 3, function(left) return left <= 0 and '0' end)
if left and left <= 0 then
  redis.call('del', KEYS[1])
end
return reply
