-- Releases several locks, as release.lua releases one, with a command that takes many keys. See acquire_all.lua.
--
-- Returns  the replies to the operations that were done. batch.lua then runs release.lua for the others:
--          - a lock that isn't its owner's (any more), or that others wait for
--          - all, if they have more than five arguments, which change the wait set
--          - all, if a command was refused: then nothing was done. The error of a message is in the lock's reply, as in
--            that of release.lua
if #firstArg > 5 then
  return {}
end
local lock, owner, publish = firstKey[1], firstArg[1], ARGV[firstArg[2] + argStep[2]]
local lockStep, ownerStep = keyStep[1], argStep[1]
local done, freed, gone, n = {}, {}, {}, 0
for i = 1, count do
  local key = KEYS[lock + i * lockStep]
  local found = redis.call('hmget', key, ARGV[owner + i * ownerStep], '@lockdog')
  if found[1] and not freed[key] and not (found[2] and string.byte(found[2]) == waitMark) then
    n = n + 1
    freed[key] = true
    gone[n] = key
    done[i] = 1
  end
end
if n > 0 then
  redis.call('del', unpack(gone))
end
for i = 1, count do
  if done[i] then
    local _, refused = tell(publish, tagged(channels, KEYS[lock + i * lockStep]), '0')
    if refused then
      done[i] = {1, 0, refused}
    end
  end
end
return done
