-- Gives a semaphore its permits, unless it has a number of them, be it 0. It comes after once.lua, which has the KEYS, the other ARGV and the replies.
--
-- ARGV[6]  how many
if value then
  return {0, now, 0}
end
return set(tonumber(ARGV[6]) > 0 and ARGV[6])
