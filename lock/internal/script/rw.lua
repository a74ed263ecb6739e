-- What the scripts of a read-write lock share. All have these keys:
--
-- KEYS[1]  the lock: a hash of 'mode' -> 'read' or 'write', and of holder -> count. A writer's owner ends in ':write'.
--          There is no '@lockdog': to Redisson every field but 'mode' is a holder
-- KEYS[2]  the lock's token counter
-- KEYS[3]  the waiting writers: a sorted set of owner -> end of its place, ms. While there is one, new readers wait
-- KEYS[4]  when a writer last left, or the lock was forced, while others waited, ms. Readers that have waited since
--          before that time don't wait for KEYS[3]
-- KEYS[5]  the owner's mark, '<token>[ <traceparent>]': it lives as long as the owner's lease
-- KEYS[6]  never exists, so that Redis runs none of these scripts while the slot moves (TRYAGAIN): with some of the
--          marks at each node, live holders would look dead
--
-- A holder has a mark for each time that it entered, '{name}:<holder>:rwlock_timeout:<1..count>'; only Redisson's
-- writers have none. A holder is dead if its marks are gone: its lease has run out. Redisson removes the dead when a
-- reader leaves. These scripts also do so at other times.
--
-- The data of other holders is read before the first write, so that an error leaves nothing half done.
local ms = math.floor(now / 1000)

local many = 64      -- in a lock with at least so many readers, look stops at the first live one
local turn = 60000   -- ms for which KEYS[4] is kept
local forever = 2 ^ 40

-- alien returns the error for a key that isn't a read-write lock.
local function alien()
  return redis.error_reply('WRONGTYPE The key holds a hash that is no read-write lock')
end

local function mark(holder, i)
  local suffix = ':' .. holder .. ':rwlock_timeout:' .. i
  if string.find(KEYS[1], '{', 1, true) then
    return KEYS[1] .. suffix
  end
  return '{' .. KEYS[1] .. '}' .. suffix
end

-- rest returns the time until a key expires, ms; forever: it doesn't expire; negative: it doesn't exist.
local function rest(key)
  local left = redis.call('pttl', key)
  return left == -1 and forever or left
end

-- shown returns the result of rest as it stands in a reply: -1 = no expiry.
local function shown(left)
  return left >= forever and -1 or left
end

-- lease returns the rest of a holder's lease, ms; negative: the holder is dead. A writer of Redisson has no marks, and
-- its thread may be negative: '<id>:-<number>:write'.
local function lease(holder, count)
  if string.find(holder, ':write$') and not string.find(holder, ':' .. string.rep('%x', 16) .. '%-%d+:write$') then
    return rest(KEYS[1])
  end
  local left = -2
  for i = count, math.max(count - 99, 1), -1 do
    left = math.max(left, rest(mark(holder, i)))
  end
  return left
end

-- look returns the holders other than own: the writer, the one with the longest lease, and the dead. In a lock with
-- many readers it finds only one live reader, unless all is true, or the first readers that it looks at are dead: to
-- check thousands in a release would block Redis for milliseconds. If the key isn't a read-write lock, seen.alien is
-- the error.
local function look(own, all)
  local seen = {left = -2, readers = 0, dead = {}}
  local function at(fields, one)
    for i = 1, #fields, 2 do
      local name, count = fields[i], tonumber(fields[i + 1])
      if name == 'mode' then
        seen.mode = fields[i + 1]
      elseif not (isOwner(name) and isCount(fields[i + 1])) then
        seen.alien = alien()
        return
      elseif name ~= own then
        local holder = {name = name, count = count, left = lease(name, count or 1)}
        if holder.left < 0 then
          table.insert(seen.dead, name)
        else
          if string.find(name, ':write$') then
            seen.writer = holder
          else
            seen.readers = seen.readers + 1
          end
          if holder.left > seen.left then
            seen.left, seen.longest = holder.left, holder
          end
          if one then
            return
          end
        end
      end
    end
  end
  if not all and redis.call('hlen', KEYS[1]) > many and redis.call('hget', KEYS[1], 'mode') == 'read' then
    at(redis.call('hscan', KEYS[1], 0, 'count', 10)[2], true)
    if seen.longest then
      seen.mode, seen.left, seen.many = 'read', rest(KEYS[1]), true
      return seen
    end
    seen.dead = {}
  end
  local fields = redis.call('hgetall', KEYS[1])
  at(fields)
  if #fields > 0 and (#fields == 2 or seen.mode ~= 'read' and seen.mode ~= 'write') then
    seen.alien = alien()
  end
  return seen
end

-- removeDead removes the dead that look has seen, or the lock if no holder is left. It updates the mode and the expiry.
local function removeDead(seen)
  if not seen.longest then
    redis.call('del', KEYS[1])
    return
  end
  for _, name in ipairs(seen.dead) do
    redis.call('hdel', KEYS[1], name)
  end
  if seen.mode == 'write' and not seen.writer then
    redis.call('hset', KEYS[1], 'mode', 'read')
  end
  if not seen.many then
    redis.call('pexpire', KEYS[1], math.max(seen.left, 1))
  end
end

-- said returns the first mark of a holder of ours, '' for others.
local function said(holder)
  local meta = redis.call('get', mark(holder, 1))
  return meta and meta ~= '1' and meta or '' -- Redisson's are '1'
end

-- grant gives the lock to ARGV[1] for ARGV[2] ms, with the mode if the lock was free; ARGV[4] is the traceparent. It
-- returns the reply of the acquire.
local function grant(mode)
  local token, meta = draw(KEYS[2])
  if ARGV[4] ~= '' then
    meta = meta .. ' ' .. ARGV[4]
  end
  local refused = after(function()
    redis.call('set', KEYS[5], meta, 'px', ARGV[2])
    if redis.call('hexists', KEYS[1], 'mode') == 0 then
      redis.call('hset', KEYS[1], 'mode', mode)
    end
    redis.call('hset', KEYS[1], ARGV[1], 1)
    if redis.call('pttl', KEYS[1]) < tonumber(ARGV[2]) then
      redis.call('pexpire', KEYS[1], ARGV[2])
    end
  end)
  if refused then -- see acquire.lua
    redis.pcall('del', KEYS[5])
    redis.pcall('hdel', KEYS[1], ARGV[1])
    if redis.pcall('hlen', KEYS[1]) == 1 then
      redis.pcall('del', KEYS[1])
    end
    return redis.error_reply(refused)
  end
  return {1, now, token}
end

-- lastWriter returns the writer in KEYS[3] whose place ends last, and that end, ms, which may have passed; nil if there
-- is none.
local function lastWriter()
  local last = redis.call('zrange', KEYS[3], -1, -1, 'withscores')
  if last[1] and not isOwner(last[1]) then
    error({err = 'WRONGTYPE The key of the writers that wait holds other things'})
  end
  return last[1], tonumber(last[2])
end

-- lastTurn returns the time in KEYS[4], 0 = none.
local function lastTurn()
  local last = redis.call('get', KEYS[4]) or '0'
  if not isNumber(last) then
    error({err = 'WRONGTYPE The key of the time at which a writer left holds something else'})
  end
  return tonumber(last)
end

-- gone notifies waiters that a writer has left, or that all holders have. If there are any waiters, it also sets
-- KEYS[4]. It returns the error's text if a command was refused.
local function gone(publish, channel)
  local heard, unheard = tell(publish, channel, '1')
  local refused = after(function()
    if heard > 0 or redis.call('exists', KEYS[3]) == 1 then
      lastTurn() -- raises an error if the key isn't ours
      redis.call('set', KEYS[4], ms, 'px', turn)
    end
  end)
  return unheard or refused
end
