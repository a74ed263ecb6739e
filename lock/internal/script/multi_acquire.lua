-- Takes several free locks, each for its own owner. If one is held, takes none and returns the holder.
--
-- KEYS[2i-1]    the i-th lock: as for acquire.lua
-- KEYS[2i]      its token counter; locks may share one
-- ARGV[1]       lease of all of them, ms
-- ARGV[2]       not-after: the server time in µs after which this call must write nothing; 0 = unknown
-- ARGV[2i+1]    owner of the i-th lock
-- ARGV[2i+2]    traceparent of its acquiring span, '' = none
--
-- Returns  {1, now, token...}                                       all granted, in their order
--          {0, now, remaining ms, holder, its '@lockdog' or '', i}  the i-th is held by another; none is taken
--          {2, now}                                                 came too late, wrote nothing
--
-- Safe to run twice for the same owners, as acquire.lua is. A key of a wrong type fails the script before its first
-- write. If a write is refused (by an ACL, or a full Redis), the locks are deleted again.

local last = {} -- token by counter, as text; false = none
local marks = {} -- '+~' or false: a second run for one owner keeps the mark of fair_acquire.lua
for i = 1, #KEYS / 2 do
  local lock, counter = KEYS[2 * i - 1], KEYS[2 * i]
  local hash = redis.call('hgetall', lock)
  local holder, meta, own = holderOf(hash, ARGV[2 * i + 1])
  if #hash > 0 and not own then
    local alien = foreign(hash)
    if alien then
      return alien
    end
    return {0, now, redis.call('pttl', lock), holder, meta, i}
  end
  marks[i] = string.byte(meta, 2) == fairMark and '+~'
  if last[counter] == nil then
    last[counter] = redis.call('get', counter)
    if not follow(last[counter]) then
      return noCounter
    end
  end
end

if late(ARGV[2]) then
  return {2, now}
end

local out = {1, now}
for i = 1, #KEYS / 2 do
  local lock, counter = KEYS[2 * i - 1], KEYS[2 * i]
  local token, text = follow(last[counter])
  last[counter] = text
  local meta = (marks[i] or '') .. text
  if ARGV[2 * i + 2] ~= '' then
    meta = meta .. ' ' .. ARGV[2 * i + 2]
  end
  local set = redis.pcall('set', counter, text, 'keepttl')
  if not set.err then
    set = redis.pcall('hset', lock, ARGV[2 * i + 1], 1, '@lockdog', meta)
  end
  if type(set) ~= 'table' then
    set = redis.pcall('pexpire', lock, ARGV[1])
  end
  if type(set) == 'table' then
    for j = 1, i do
      redis.call('del', KEYS[2 * j - 1])
    end
    return set
  end
  out[#out + 1] = token
end
return out
