-- Gives a lock on one node of a quorum the token of its lease, and raises the node's token counter to it.
--
-- KEYS[1]  the lock
-- KEYS[2]  its token counter
-- ARGV[1]  owner
-- ARGV[2]  token of the lease: the largest one that a node of its first majority gave
-- ARGV[3]  traceparent of the acquiring span, '' = none
--
-- Returns  1 the counter is at the token, or past it; 0 the lock isn't the owner's any more.
--
-- Safe to run late and more than once: it changes nothing unless the owner has the lock, and it lowers no counter below
-- 2^53. A node that joins late may have given its lock a larger token, which is replaced.
local found = redis.call('hmget', KEYS[1], ARGV[1], '@lockdog')
if not found[1] then
  redis.call('hdel', KEYS[1], ARGV[1]) -- see release.lua
  return 0
end
local last = redis.call('get', KEYS[2])
if last and (last == '' or string.find(last, '%D')) then
  return redis.error_reply('WRONGTYPE The key of the token counter holds text that is no number')
end
last = last and tonumber(last) or 0
if last < tonumber(ARGV[2]) or last >= 9007199254740992 then -- see token.lua
  redis.call('set', KEYS[2], ARGV[2], 'keepttl')
end
local meta = ARGV[2]
if found[2] and string.byte(found[2], 2) == fairMark then
  meta = '+~' .. meta -- '+' alone may be dropped: the release then wakes all
end
if ARGV[3] ~= '' then
  meta = meta .. ' ' .. ARGV[3]
end
redis.call('hset', KEYS[1], '@lockdog', meta)
return 1
