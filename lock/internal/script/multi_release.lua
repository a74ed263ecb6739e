-- Releases several locks.
--
-- KEYS[i]      the i-th lock
-- ARGV[1]      'publish', or 'spublish' where channels are sharded
-- ARGV[2i]     owner of the i-th lock
-- ARGV[2i+1]   channel that its waiters listen on
--
-- Returns  {now, result...}; the result of a lock is
--          1          released and published
--          {1, text}  released, but the message was refused with that error
--          0          not the owner's (any more), and nobody else's
--          2          somebody else's
--          text       the error's text
--
-- All keys are used by pcall: an error at one lock doesn't stop the release of the others, except a replica's: see
-- demoted.lua.
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
