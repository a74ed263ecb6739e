-- Gives a semaphore its permits, unless it has a number of them, be it 0. It comes after once.lua, which has the KEYS, the other ARGV and the replies.
--
-- ARGV[6]  how many
if value then
  return {0, now, 0}
end
redis.call('set', KEYS[2], '1', 'px', ARGV[5])
redis.call('set', KEYS[1], ARGV[6])
if tonumber(ARGV[6]) > 0 then
  local _, refused = tell(ARGV[3], ARGV[2], ARGV[6])
  if refused then -- an ACL forbids it: what is refused isn't done
    redis.call('del', KEYS[1], KEYS[2])
    return redis.error_reply(refused)
  end
end
if KEYS[3] then
  redis.pcall('del', unpack(KEYS, 3))
end
return {1, now}
