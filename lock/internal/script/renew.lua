-- Renews many leases of one node in one call. A lease is renewed only for its owner.
--
-- KEYS[1]  the first lock: routes the call. The names are in ARGV because in a cluster declared keys
--          must share a slot, while a script may touch undeclared keys of any slot of its own node.
-- ARGV[1]  not-after: the server time in µs after which this call must write nothing; 0 = unknown
-- ARGV[2..] per lease: the lock, owner, lease in ms; before the lease 'r' if the owner is a field of a read-write
--          lock, 'p' if it is a permit, and the lock the sorted set of those that are taken
--
-- Returns  {now, result...}, one result per lease:
--          1 renewed, 0 the lock is gone, 2 it has another owner, 3 came too late, or the error's text.
--
-- Every key is touched through pcall, so that one bad key never spoils the others' renewal. A lease isn't told gone before a write of
-- its key was let through: it changes nothing, but a replica, which may be behind or empty, refuses it.
local tooLate = late(ARGV[1])

local function beside(key, suffix)
  if string.find(key, '{', 1, true) then
    return key .. ':' .. suffix
  end
  return '{' .. key .. '}:' .. suffix
end

-- expire gives a lock its lease, and whatever of a read-write lock belongs to the owner.
local function expire(kind, key, owner, lease)
  if kind ~= 'r' then
    return redis.pcall('pexpire', key, lease)
  end
  lease = string.sub(lease, 2)
  local mark = beside(key, owner .. ':rwlock_timeout:1')
  local set = redis.pcall('pexpire', mark, lease)
  if set == 0 then
    -- Deleted; or the slot moves, and the mark comes after the lock. Made anew here it would stop the move.
    return {err = 'ERR the mark of the holder is missing'}
  elseif type(set) == 'table' then
    return set
  end
  local left = redis.pcall('pttl', key)
  if type(left) == 'table' then
    return left
  end
  if left >= tonumber(lease) then -- by another holder's longer lease
    return 1
  end
  return redis.pcall('pexpire', key, lease)
end

local function permit(timeouts, member, lease)
  local score = redis.pcall('zscore', timeouts, member)
  if type(score) == 'table' then
    return score.err
  end
  local gone = not score or tonumber(score) <= now / 1000 -- run out, and as good as gone: anybody may take it
  if tooLate and not gone then
    return 3
  end
  local writes = redis.pcall('zrem', timeouts, '') -- no such member; after a ZREM a Redis that is full takes a ZADD, too
  if gone then
    return type(writes) == 'table' and writes.err or 0
  end
  local set = redis.pcall('zadd', timeouts, string.format('%.0f', math.floor(now / 1000) + string.sub(lease, 2)), member)
  return type(set) == 'table' and set.err or 1
end

local out = {now}
for i = 2, #ARGV, 3 do
  local result
  local kind = string.sub(ARGV[i + 2], 1, 1)
  if kind == 'p' then
    result = permit(ARGV[i], ARGV[i + 1], ARGV[i + 2])
  else
    local own = redis.pcall('hexists', ARGV[i], ARGV[i + 1])
    if type(own) == 'table' then
      result = own.err
    elseif own == 0 then
      local writes = redis.pcall('hdel', ARGV[i], ARGV[i + 1]) -- no such field
      if type(writes) == 'table' then
        result = writes.err
      else
        result = redis.pcall('exists', ARGV[i]) == 1 and 2 or 0
      end
    elseif tooLate then
      result = 3
    else
      local set = expire(kind, ARGV[i], ARGV[i + 1], ARGV[i + 2])
      result = type(set) == 'table' and set.err or set
    end
  end
  local refused = demoted(result)
  if refused then
    return refused
  end
  out[#out + 1] = result
end
return out
