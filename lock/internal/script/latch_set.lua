-- Closes a latch, if it is open. once.lua describes KEYS, the other ARGV and the replies.
--
-- ARGV[6]  how many times it has to be counted down
if value and tonumber(value) > 0 then
  return {0, now, 0}
end
return set('1')
