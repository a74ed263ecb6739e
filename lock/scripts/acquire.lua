-- Takes a free lock for one owner, or says who holds it.
--
-- KEYS[1]  the lock: a hash of owner -> count, plus our '@lockdog' -> '<token>[ <traceparent>]'
-- KEYS[2]  the token counter of the lock's slot; left out while the slot moves (then the token is TIME alone)
-- ARGV[1]  owner
-- ARGV[2]  lease, ms
-- ARGV[3]  not-after: the server time in µs after which this call must write nothing; 0 = unknown
-- ARGV[4]  traceparent of the acquiring span, '' = none
--
-- Returns  now                                                granted, and the time is the token
--          {1, now, token}                                    granted; the clock was behind the last token
--          {0, now, remaining ms, holder, its '@lockdog' or ''}  held by another
--          {2, now}                                           came too late, wrote nothing
--
-- Safe to run twice for one owner: the count is set, never raised, and the token rises again. It comes after clock.lua.
local hash = redis.call('hgetall', KEYS[1])
local holder, meta, ours = '', '', #hash == 0
for i = 1, #hash, 2 do
  if hash[i] == '@lockdog' then
    meta = hash[i + 1]
  elseif hash[i] == ARGV[1] then
    ours = true
  elseif holder == '' then
    holder = hash[i]
  end
end
if not ours then
  return {0, now, redis.call('pttl', KEYS[1]), holder, meta}
end

local notAfter = tonumber(ARGV[3])
if notAfter > 0 and now > notAfter then
  return {2, now}
end

local token = now
meta = nowText
if KEYS[2] then
  local last = tonumber(redis.call('set', KEYS[2], meta, 'get')) or 0
  if last >= token then -- the clock is behind: that was too little
    token = last + 1
    meta = string.format('%.0f', token)
    redis.call('set', KEYS[2], meta)
  end
end

if ARGV[4] ~= '' then
  meta = meta .. ' ' .. ARGV[4]
end
redis.call('hset', KEYS[1], ARGV[1], 1, '@lockdog', meta)
local set = redis.pcall('pexpire', KEYS[1], ARGV[2])
if type(set) == 'table' then -- an ACL may forbid it, and without an expiry the lock would stay for ever
  redis.call('del', KEYS[1])
  return set
end
if token == now then
  return now
end
return {1, now, token}
