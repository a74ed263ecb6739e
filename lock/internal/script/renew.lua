-- Renews many leases of one node in one call. A lease is renewed only for its owner.
--
-- KEYS[1]  the first lock: routes the call. In a cluster it may be left out. The locks are in ARGV because in a cluster
--          all declared keys must be in one slot, while a script may use undeclared keys of any slot of its own node
-- KEYS[2]  the owner's mark, only in a call for one reader or writer where all keys must be declared
-- ARGV[1]  not-after: the server time in µs after which this call must write nothing; 0 = unknown
-- ARGV[2..] sections of leases of one kind and length:
--          the kind: '' = the owner is a field of the lock's hash, 'r' = of a read-write lock's hash, 'p' = the owner
--          is a permit, and the lock is the sorted set of the permits that are taken
--          the length of the lease, ms
--          how many leases follow
--          per lease: the lock, owner
--
-- Returns  {now, how many were renewed, n, result, ...}: for each lease that wasn't renewed its number, counted from 1
--          over all sections, and its result: 0 the lock or the permit is gone, or the permit's lease has run out; 2 the
--          lock has another owner; 3 came too late; or the error's text
--
-- All keys are used by pcall: an error at one lock doesn't stop the renewal of the others, except a replica's: see
-- demoted.lua. A lock is reported as gone only after a write of its key that changes nothing: a replica, which may be
-- behind or empty, refuses that.
local tooLate = late(ARGV[1])
local run, argv = redis.pcall, ARGV

local function beside(key, suffix)
  if string.find(key, '{', 1, true) then
    return key .. ':' .. suffix
  end
  return '{' .. key .. '}:' .. suffix
end

-- expire extends a lock. For a read-write lock, it extends the owner's mark (see rw.lua), and the lock's key if that
-- would expire before the mark. If the mark is missing, it returns an error.
local function expire(kind, key, owner, lease, expiry)
  if kind ~= 'r' then
    return run('pexpireat', key, expiry)
  end
  local mark = beside(key, owner .. ':rwlock_timeout:1')
  local set = run('pexpireat', mark, expiry)
  if set == 0 then
    -- The mark is gone, or the slot moves and the mark hasn't arrived yet. To create it here would stop the move.
    return {err = 'ERR the mark of the holder is missing'}
  elseif type(set) == 'table' then
    return set
  end
  local left = run('pttl', key)
  if type(left) == 'table' then
    return left
  end
  if left >= tonumber(lease) then -- another holder's lease is longer
    return 1
  end
  return run('pexpireat', key, expiry)
end

local function permit(timeouts, member, expiry)
  local score = run('zscore', timeouts, member)
  if type(score) == 'table' then
    return score.err
  end
  local gone = not score or tonumber(score) <= now / 1000 -- a permit whose lease has run out may be taken at any time
  if tooLate and not gone then
    return 3
  end
  -- Removes nothing, but a replica refuses it. After a ZREM, a full Redis also accepts a ZADD.
  local probe = run('zrem', timeouts, member .. '-')
  if gone then
    return type(probe) == 'table' and probe.err or 0
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
    local probe = run('hdel', key, owner) -- removes nothing, but a replica refuses it
    if type(probe) == 'table' then
      return probe.err
    end
    return run('exists', key) == 1 and 2 or 0
  elseif tooLate then
    return 3
  end
  local set = expire(kind, key, owner, lease, expiry)
  return type(set) == 'table' and set.err or set
end

-- Nearly all leases are of kind '' and still held: two commands renew each of them. If one of the two doesn't return 1,
-- renew starts over and finds out why. To run the commands again is harmless. PEXPIREAT costs Redis less than PEXPIRE,
-- which it would rewrite as PEXPIREAT for its replicas.
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
