-- Takes several free locks, each for an owner of its own, or none of them, and then says which is held.
--
-- KEYS[2i-1]    the i-th lock: as for acquire.lua
-- KEYS[2i]      the token counter of its slot; locks may share one
-- ARGV[1]       lease of all of them, ms
-- ARGV[2]       not-after: the server time in µs after which this call must write nothing; 0 = unknown
-- ARGV[2i+1]    owner of the i-th lock
-- ARGV[2i+2]    traceparent of its acquiring span, '' = none
--
-- Returns  {1, now, token...}                                       all granted, in their order
--          {0, now, remaining ms, holder, its '@lockdog' or '', i}  the i-th is held by another; none is taken
--          {2, now}                                                 came too late, wrote nothing
--
-- Safe to run twice for the same owners, as acquire.lua is. What can fail for a bad key fails before the first write;
-- what an ACL, or a full memory, refuses then undoes them.

local last = {} -- token by counter
local marks = {} -- '+~' where a FairMutex of the name is waited for, see fair_acquire.lua: a second run for one owner keeps it
for i = 1, #KEYS / 2 do
  local lock, counter = KEYS[2 * i - 1], KEYS[2 * i]
  local hash = redis.call('hgetall', lock)
  local holder, meta, ours = '', '', #hash == 0
  for j = 1, #hash, 2 do
    if hash[j] == '@lockdog' then
      meta = hash[j + 1]
      marks[i] = string.byte(meta, 2) == 126 and '+~'
    elseif hash[j] == ARGV[2 * i + 1] then
      ours = true
    elseif holder == '' and hash[j] ~= 'mode' then -- which is of a read-write lock
      holder = hash[j]
    end
  end
  if not ours then
    return {0, now, redis.call('pttl', lock), holder, meta, i}
  end
  if not last[counter] then
    local text = redis.call('get', counter)
    last[counter] = text and tonumber(text) or 0
    if last[counter] >= 9007199254740992 then -- see token.lua
      last[counter] = 0
    end
  end
end

if late(ARGV[2]) then
  return {2, now}
end

local out = {1, now}
for i = 1, #KEYS / 2 do
  local lock, counter = KEYS[2 * i - 1], KEYS[2 * i]
  local token = now
  if last[counter] >= token then
    token = last[counter] + 1
  end
  last[counter] = token
  local text = string.format('%.0f', token)
  local meta = (marks[i] or '') .. text
  if ARGV[2 * i + 2] ~= '' then
    meta = meta .. ' ' .. ARGV[2 * i + 2]
  end
  local set = redis.pcall('set', counter, text)
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
