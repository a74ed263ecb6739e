-- Gives several locks back.
--
-- KEYS[i]      the i-th lock
-- ARGV[1]      'publish', or 'spublish' where channels are sharded
-- ARGV[2i]     owner of the i-th lock
-- ARGV[2i+1]   channel that its waiters listen on
--
-- Returns  {now, result...}, one result per lock:
--          1 released and published, {1, text} released, and the message refused with that error, 0 not the owner's (any more) and nobody's, 2 somebody else's, or the error's text.
--
-- Every key is touched through pcall, so that one bad key never keeps the others. It comes after clock.lua, demoted.lua, channel.lua,
-- marks.lua, tell.lua, fair_queue.lua and fair_wake.lua.
local out = {now}

local function release(key, owner, channel)
  local found = redis.pcall('hmget', key, owner, '@lockdog')
  if found.err then
    return found.err
  elseif not found[1] then
    local writes = redis.pcall('hdel', key, owner) -- see release.lua
    if type(writes) == 'table' then
      return writes.err
    end
    return redis.pcall('exists', key) == 1 and 2 or 0
  end
  local deleted = redis.pcall('del', key)
  if type(deleted) == 'table' then
    return deleted.err
  end
  if string.byte(found[2] or '', 2) == fairMark then
    wakeFair(key, ARGV[1], channel)
  end
  local _, refused = tell(ARGV[1], channel, '0')
  return refused and {1, refused} or 1
end

for i, key in ipairs(KEYS) do
  local result = release(key, ARGV[2 * i], ARGV[2 * i + 1])
  local refused = demoted(result)
  if refused then
    return refused
  end
  out[#out + 1] = result
end
return out
