-- give gives the lock of the one who releases it to another owner, and returns the token that it draws from the counter (see draw): a number and
-- its text; nothing where a step was refused (by an ACL, say) or the counter is on its way to another node. Then the release goes on, which finds the
-- old entry, and deletes all.
--
-- The old owner's entry goes last. The lock is never without an entry, for a slot on its way to another node takes no key that it hasn't. And
-- the first write is one that a full Redis takes: then it takes the others, too. It comes after clock.lua and token.lua.
local function give(key, from, counter, existing, owner, lease, mark, traceparent)
  if redis.pcall('pexpire', key, lease) ~= 1 then
    return
  end
  local drawn, token, text = pcall(draw, counter, existing)
  if not drawn then
    return
  end
  local meta = mark .. text
  if traceparent ~= '' then
    meta = meta .. ' ' .. traceparent
  end
  if type(redis.pcall('hset', key, owner, '1', '@lockdog', meta)) == 'number' and redis.pcall('hdel', key, from) == 1 then
    return token, text
  end
end
