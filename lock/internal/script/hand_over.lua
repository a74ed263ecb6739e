-- Gives the lock to a waiter of the same client if no other client is seen to wait (see near.lua). If it doesn't,
-- next.lua and release.lua follow: next.lua may still give the lock to that waiter.
--
-- KEYS[1]  the lock
-- KEYS[2]  the lock's token counter
-- ARGV[1..8]  see release.lua
-- ARGV[9]  next owner
-- ARGV[10] next owner's lease, ms
-- ARGV[11] not-after: the server time in µs after which nothing is handed over; 0 = unknown
-- ARGV[12] next owner's traceparent, '' = none
-- ARGV[13] see near.lua
--
-- Returns  now              handed over, and the time is the token
--          {2, now, token}  handed over; the clock wasn't past the last token
--          or what release.lua returns
if not late(ARGV[11]) then
  local token = transfer(KEYS[1], ARGV[1], KEYS[2], false, ARGV[9], ARGV[10], '', ARGV[12])
  if token then
    if updateWaitSet then
      updateWaitSet()
    end
    return token == now and now or {2, now, token}
  end
end
