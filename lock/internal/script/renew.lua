-- Renews many leases of one node in one call. A lease is renewed only for its owner.
--
-- KEYS[1]  the first lock: routes the call. The names are in ARGV because in a cluster declared keys
--          must share a slot, while a script may touch undeclared keys of any slot of its own node.
-- ARGV[1]  not-after: the server time in µs after which this call must write nothing; 0 = unknown
-- ARGV[2..] sections of leases that are alike. A section has
--          its kind: '' if the owners are fields of the locks, 'r' if of read-write locks, 'p' if they are permits, and the locks
--          the sorted sets of those that are taken
--          the lease in ms
--          how many leases follow
--          per lease: the lock, owner
--
-- Returns  {now, how many were renewed, n, result, ...}: for each lease that wasn't renewed its number, of all sections from 1 on, and
--          0 the lock is gone, 2 it has another owner, 3 came too late, or the error's text.
--
-- Every key is touched through pcall, so that one bad key never spoils the others' renewal. A lease isn't told gone before a write of
-- its key was let through: it changes nothing, but a replica, which may be behind or empty, refuses it.
local tooLate = late(ARGV[1])
local run, argv = redis.pcall, ARGV

local function beside(key, suffix)
  if string.find(key, '{', 1, true) then
    return key .. ':' .. suffix
  end
  return '{' .. key .. '}:' .. suffix
end

-- expire gives a lock its lease, and whatever of a read-write lock belongs to the owner.
local function expire(kind, key, owner, lease, expiry)
  if kind ~= 'r' then
    return run('pexpireat', key, expiry)
  end
  local mark = beside(key, owner .. ':rwlock_timeout:1')
  local set = run('pexpireat', mark, expiry)
  if set == 0 then
    -- Deleted; or the slot moves, and the mark comes after the lock. Made anew here it would stop the move.
    return {err = 'ERR the mark of the holder is missing'}
  elseif type(set) == 'table' then
    return set
  end
  local left = run('pttl', key)
  if type(left) == 'table' then
    return left
  end
  if left >= tonumber(lease) then -- by another holder's longer lease
    return 1
  end
  return run('pexpireat', key, expiry)
end

local function permit(timeouts, member, expiry)
  local score = run('zscore', timeouts, member)
  if type(score) == 'table' then
    return score.err
  end
  local gone = not score or tonumber(score) <= now / 1000 -- run out, and as good as gone: anybody may take it
  if tooLate and not gone then
    return 3
  end
  local writes = run('zrem', timeouts, member .. '-') -- no such member; after a ZREM a Redis that is full takes a ZADD, too
  if gone then
    return type(writes) == 'table' and writes.err or 0
  end
  local set = run('zadd', timeouts, expiry, member)
  return type(set) == 'table' and set.err or 1
end

-- renew renews one lease and returns its result, which is 1 if it was renewed.
local function renew(kind, key, owner, lease, expiry)
  if kind == 'p' then
    return permit(key, owner, expiry)
  end
  local own = run('hexists', key, owner)
  if type(own) == 'table' then
    return own.err
  elseif own == 0 then
    local writes = run('hdel', key, owner) -- no such field
    if type(writes) == 'table' then
      return writes.err
    end
    return run('exists', key) == 1 and 2 or 0
  elseif tooLate then
    return 3
  end
  local set = expire(kind, key, owner, lease, expiry)
  return type(set) == 'table' and set.err or set
end

-- Nearly all leases are fields that are there, and two commands renew them: nothing that only others need is done for these. Of the
-- commands that set an expiry, the one that takes a time leaves Redis least to do, as that is what goes to replicas. When one of
-- the two doesn't answer 1, renew asks again: none of it does more when it is done twice.
local out, n, at = {now, 0}, 0, 2
while argv[at] do
  local kind, lease, last = argv[at], argv[at + 1], at + 1 + 2 * argv[at + 2]
  local expiry = string.format('%.0f', math.floor(now / 1000) + lease)
  local plain = kind == '' and not tooLate
  for i = at + 3, last, 2 do
    local key, owner = argv[i], argv[i + 1]
    n = n + 1
    if not plain or run('hexists', key, owner) ~= 1 or run('pexpireat', key, expiry) ~= 1 then
      local result = renew(kind, key, owner, lease, expiry)
      local refused = demoted(result)
      if refused then
        return refused
      end
      if result ~= 1 then
        out[#out + 1] = n
        out[#out + 1] = result
      end
    end
  end
  at = last + 2
end
out[2] = n - (#out - 2) / 2
return out
