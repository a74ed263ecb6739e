-- Takes a read-write lock for one reader, or returns the writer that it must wait for. rw.lua describes KEYS.
--
-- ARGV[1]  owner
-- ARGV[2]  lease, ms
-- ARGV[3]  not-after: the server time in µs after which this call must write nothing; 0 = unknown
-- ARGV[4]  traceparent of the acquiring span, '' = none
-- ARGV[5]  owner of the write lease that the caller holds, '' = none: it may read at the same time
-- ARGV[6]  how long the caller has waited, ms
--
-- Returns  {1, now, token}                                  granted
--          {0, now, remaining ms, writer, its mark or ''}   a writer holds it, or waits for it and goes first
--          {2, now}                                         came too late, wrote nothing
--
-- Safe to run twice for one owner: the count is set, never raised, and the token rises again.
local function held(owner)
  return owner ~= '' and redis.call('hexists', KEYS[1], owner) == 1
end

-- readers reports whether the hash is a lock with readers. It checks some fields only, as there may be thousands.
local function readers()
  local fields = redis.call('hscan', KEYS[1], 0, 'count', 10)[2]
  for i = 1, math.min(#fields, 2 * many), 2 do
    if fields[i] ~= 'mode' and not (isOwner(fields[i]) and isCount(fields[i + 1])) then
      return false
    end
  end
  return redis.call('hlen', KEYS[1]) > 1
end

local mode = redis.call('hget', KEYS[1], 'mode')
if not mode and redis.call('exists', KEYS[1]) == 1 then
  return alien()
end
if not held(ARGV[1]) and not (mode == 'write' and held(ARGV[5])) then
  local seen = mode and mode ~= 'read' and look(ARGV[1])
  if seen and seen.alien or mode == 'read' and not readers() then
    return alien()
  elseif seen and seen.writer then
    return {0, now, shown(seen.writer.left), seen.writer.name, said(seen.writer.name)}
  end
  local writer, place = lastWriter()
  if writer and place > ms and ms - ARGV[6] >= lastTurn() then
    return {0, now, place - ms, writer, ''}
  end
  if late(ARGV[3]) then
    return {2, now}
  end
  if seen then -- the writer's lease ran out
    removeDead(seen)
  end
elseif late(ARGV[3]) then
  return {2, now}
end
return grant('read')
