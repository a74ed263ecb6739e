-- Gives the lock back, or hands it straight to a waiter of the same client.
--
-- KEYS[1]  the lock
-- KEYS[2]  the token counter of the lock's slot; only with a hand-over
-- ARGV[1]  owner
-- ARGV[2]  channel that waiters listen on
-- ARGV[3]  'publish', or 'spublish' where channels are sharded
-- ARGV[4]  only with a hand-over: next owner ...
-- ARGV[5]  its lease, ms
-- ARGV[6]  not-after: the server time in µs after which nothing is handed over; 0 = unknown
-- ARGV[7]  its traceparent, '' = none
-- ARGV[8]  'numsub', or 'shardnumsub' where channels are sharded
-- ARGV[9]  how many of the channel's subscribers are our own; with more, another process waits and
--          the lock is published instead
--
-- Returns  1                released and published
--          {2, now, token}  handed over
--          {0, 0, taken}    not the owner's (any more); taken = 1 when somebody else holds it
if redis.call('hexists', KEYS[1], ARGV[1]) == 0 then
  return {0, 0, redis.call('exists', KEYS[1])}
end
redis.call('del', KEYS[1])

if ARGV[4] then
  local time = redis.call('time')
  local now = time[1] * 1000000 + time[2]
  local notAfter = tonumber(ARGV[6])
  local waiting = redis.call('pubsub', ARGV[8], ARGV[2])[2]
  if waiting <= tonumber(ARGV[9]) and (notAfter == 0 or now <= notAfter) then
    local token = now
    local meta = string.format('%.0f', token)
    local last = tonumber(redis.call('set', KEYS[2], meta, 'get')) or 0
    if last >= token then -- see acquire.lua
      token = last + 1
      meta = string.format('%.0f', token)
      redis.call('set', KEYS[2], meta)
    end
    if ARGV[7] ~= '' then
      meta = meta .. ' ' .. ARGV[7]
    end
    redis.call('hset', KEYS[1], ARGV[4], 1, '@lockdog', meta)
    local set = redis.pcall('pexpire', KEYS[1], ARGV[5])
    if type(set) == 'table' then -- see acquire.lua
      redis.call('del', KEYS[1])
      return set
    end
    return {2, now, token}
  end
end

redis.call(ARGV[3], ARGV[2], '0')
return 1
