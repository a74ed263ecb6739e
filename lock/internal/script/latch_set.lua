-- Closes a latch, if it is open. It comes after once.lua, which has the KEYS, the other ARGV and the replies.
--
-- ARGV[6]  how often it has yet to be counted down
if value and tonumber(value) > 0 then
  return {0, now, 0}
end
redis.call('set', KEYS[2], '1', 'px', ARGV[5])
redis.call('set', KEYS[1], ARGV[6])
local _, refused = tell(ARGV[3], ARGV[2], '1')
if refused then -- an ACL forbids it: what is refused isn't done
  redis.call('del', KEYS[1], KEYS[2])
  return redis.error_reply(refused)
end
if KEYS[3] then
  redis.pcall('del', unpack(KEYS, 3))
end
return {1, now}
