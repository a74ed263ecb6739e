-- Takes a free read-write lock for one writer, or returns a holder. rw.lua describes KEYS.
--
-- ARGV[1]  owner; it ends in ':write'
-- ARGV[2]  lease, ms
-- ARGV[3]  not-after: the server time in µs after which this call must only remove the dead; 0 = unknown
-- ARGV[4]  traceparent of the acquiring span, '' = none
-- ARGV[5]  how long the caller's place in KEYS[3] lasts without another call, ms; 0 = it doesn't wait
--
-- Returns  {1, now, token}                                  granted
--          {0, now, remaining ms, holder, its mark or ''}   held by others; remaining = of their longest lease
--          {2, now}                                         came too late, wrote nothing
--
-- Safe to run twice for one owner: the count is set, never raised, and the token rises again.
local seen = look(ARGV[1])
local mine = redis.call('hexists', KEYS[1], ARGV[1]) == 1
if seen.alien then
  return seen.alien
end
if seen.longest and not mine then
  local one = seen.writer or seen.longest
  local meta = said(one.name)
  if #seen.dead > 0 then
    removeDead(seen)
  end
  local keep = tonumber(ARGV[5])
  if keep > 0 and not late(ARGV[3]) then
    lastWriter() -- raises an error if the key isn't ours
    -- If a write is refused (a full Redis, an ACL), the call goes on: new readers then don't wait for the caller.
    redis.pcall('zadd', KEYS[3], ms + keep, ARGV[1])
    local left = redis.pcall('pttl', KEYS[3])
    if type(left) == 'number' and left < keep then
      redis.pcall('pexpire', KEYS[3], keep)
    end
  end
  return {0, now, shown(seen.left), one.name, meta}
end
if late(ARGV[3]) then
  return {2, now}
end
if not mine then -- there is no live holder
  redis.call('del', KEYS[1])
end
local answer = grant('write')
if not answer.err then
  redis.pcall('zrem', KEYS[3], ARGV[1])
end
return answer
