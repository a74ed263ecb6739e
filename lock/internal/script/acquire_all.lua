-- Takes several locks, as acquire.lua takes one, with commands that take many keys: Lua's call of a command takes
-- longer than the command itself.
--
-- KEYS and ARGV are those of batch.lua: key or argument j of operation i, both from 1 on, is at first[j] + i * step[j].
--
-- Returns  the replies to the operations that were done. batch.lua then runs acquire.lua for the others:
--          - an operation whose token can't be the time
--          - all, if one of the locks is held; if there are other keys than a lock and a token counter; if all have the
--            same counter; if the not-after has passed, or isn't the same for all
--          - all, if a command was refused: to run acquire.lua for an owner that has the lock already is safe
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
      or not before and redis.call('exists', key) == 0) then -- MSET would overwrite a key of another type
    drawn[key] = true -- a second operation with the counter, such as of the same lock, is left to acquire.lua
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
