-- The marks at the beginning of a lock's '@lockdog', as bytes: see acquire.lua.
local waitMark, fairMark = 43, 126 -- '+': others may wait; after it '~': also for a FairMutex

-- foreignSet reports whether the key of a lock's wait set holds another program's sorted set. Such a set is never
-- changed: the lock then has no wait set.
local function foreignSet(set)
  local first = redis.pcall('zrange', set, 0, 0)[1]
  return first and not string.find(first .. ' ', '^%d%d%d%d%d%d%d%d%d%d ')
end
