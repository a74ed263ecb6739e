-- transfer moves the lock from its owner to another one. It returns the new token, which it draws from the counter (see
-- draw), as a number and as text. It returns nothing if a command was refused (by an ACL, say), or if the counter can't
-- be used (its slot moves, say). The old owner then still has its field, and the release goes on and deletes the lock.
--
-- The old owner's field is deleted last: a lock without a field is deleted, and in a slot that moves it can't be
-- created again. The first write is one that a full Redis accepts: it then accepts the others in the script, too. Needs
-- token.lua.
local function transfer(key, from, counter, existing, owner, lease, mark, traceparent)
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
  if type(redis.pcall('hset', key, owner, '1', '@lockdog', meta)) == 'number'
      and redis.pcall('hdel', key, from) == 1 then
    return token, text
  end
end
