-- Closes a latch, if it is open. It comes after once.lua, which has the KEYS, the other ARGV and the replies.
--
-- ARGV[6]  how often it has yet to be counted down
if value and tonumber(value) > 0 then
  return {0, now, 0}
end
return set('1')
