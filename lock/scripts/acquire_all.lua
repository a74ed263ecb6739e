-- Takes several locks, as acquire.lua takes one, with commands that take many keys: a command takes Redis less time than Lua's call of it does.
--
-- first[i] + step[i] * n  where in KEYS or ARGV the key or argument i of the operation n stands, which counts from 0
--
-- Returns  the answers to those that it took. All others are left to acquire.lua: all, when one of the locks is held, and one for which the
--          time can't be the token. Where a step is refused, everything is left to it, for to run it twice for one owner is safe.
local lock, counter = firstKey[1], firstKey[2]
if #firstKey ~= 2 or keyStep[2] == 0 or redis.call('exists', unpack(KEYS, lock + 1, lock + count)) > 0 then
  return {}
end
local last = redis.call('mget', unpack(KEYS, counter + 1, counter + count))
local done, drawn, tokens, n = {}, {}, {}, 0
local notAfter, notAfterStep = firstArg[3], argStep[3]
for i = 1, count do
  local key, before = KEYS[counter + i], last[i]
  if not drawn[key] and (not before or later(nowText, before)) and not late(ARGV[notAfter + i * notAfterStep]) then
    drawn[key] = true -- which also leaves a lock's second acquire to acquire.lua
    tokens[n + 1], tokens[n + 2] = key, nowText
    n = n + 2
    done[i] = now
  end
end
redis.call('mset', unpack(tokens))
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
