-- The marks that the '@lockdog' of a lock may begin with, as bytes: see acquire.lua.
local waitMark, fairMark = 43, 126 -- '+': others wait; after it '~': some of them for a FairMutex

-- others says whether a key in the place of a lock's wait set is a sorted set that somebody else keeps. It is left alone: the lock then has no wait set.
local function others(set)
  local first = redis.pcall('zrange', set, 0, 0)[1]
  return first and not string.find(first .. ' ', '^%d%d%d%d%d%d%d%d%d%d ')
end
