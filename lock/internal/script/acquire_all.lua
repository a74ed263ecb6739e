-- Takes several locks, as acquire.lua takes one, with commands that take many keys: a command takes Redis less time than Lua's call of it does.
--
-- KEYS and ARGV are those of batch.lua: the key or argument j of the operation i, counted from 1, stands at first[j] + i * step[j].
--
-- Returns  the answers to those that it took. The others are left to acquire.lua: those for which the time can't be the token; and all, when
--          one of the locks is held, when they have other keys than a lock and a counter of its own each, and when they come too late, or
--          their not-after isn't the same. Where a step is refused, everything is left to it: to run it again for an owner who has the lock
--          is safe.
local lock, counter = firstKey[1], firstKey[2]
if #firstKey ~= 2 or keyStep[2] == 0 or argStep[3] ~= 0 or late(ARGV[firstArg[3]])
    or redis.call('exists', unpack(KEYS, lock + 1, lock + count)) > 0 then
  return {}
end
local last = redis.call('mget', unpack(KEYS, counter + 1, counter + count))
local done, drawn, tokens, n = {}, {}, {}, 0
for i = 1, count do
  local key, before = KEYS[counter + i], last[i]
  if not drawn[key] and (before and follow(before) == now
      or not before and redis.call('exists', key) == 0) then -- where it holds something else, MSET would do away with that
    drawn[key] = true -- which also leaves a lock's second acquire to acquire.lua
    tokens[n + 1], tokens[n + 2] = key, nowText
    n = n + 2
    done[i] = now
  end
end
if n > 0 then
  redis.call('mset', unpack(tokens))
end
local owner, lease, traceparent = firstArg[1], firstArg[2], firstArg[4]
local ownerStep, leaseStep, traceparentStep = argStep[1], argStep[2], argStep[4]
for i = 1, count do
  if done[i] then
    local key, meta = KEYS[lock + i], ARGV[traceparent + i * traceparentStep]
    meta = meta == '' and nowText or nowText .. ' ' .. meta
    redis.call('hset', key, ARGV[owner + i * ownerStep], '1', '@lockdog', meta)
    redis.call('pexpire', key, ARGV[lease + i * leaseStep])
  end
end
return done
