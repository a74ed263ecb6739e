-- Sets the number of a semaphore's permits, unless it has a number, even 0. once.lua describes KEYS, the other ARGV and
-- the replies.
--
-- ARGV[6]  how many
if value then
  return {0, now, 0}
end
return set(tonumber(ARGV[6]) > 0 and ARGV[6])
