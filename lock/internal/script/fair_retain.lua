-- Ends a lease whose lock stays taken for a while, as retain.lua does. It is told also to the next in the queue, who doesn't listen where others do.
--
-- KEYS and ARGV[1..3] are those of fair_release.lua
-- ARGV[4]  for how long the lock stays taken, ms
--
-- Returns  as retain.lua
--
-- It comes after clock.lua, after.lua, tell.lua, owner.lua and fair_queue.lua.
local queue = {waiters = KEYS[3], deadlines = KEYS[4], alive = KEYS[5]}

-- wake tells those who wait to look. It returns what was refused.
local function wake()
  local untold
  local refused = after(function()
    local head = first(queue, math.floor(now / 1000))
    if head then
      local _
      _, untold = tell(ARGV[3], ARGV[2] .. ':' .. head, '0')
    end
  end)
  local _, unheard = tell(ARGV[3], ARGV[2], '0')
  return refused or untold or unheard
end

if redis.call('hexists', KEYS[1], ARGV[1]) == 0 then
  redis.call('hdel', KEYS[1], ARGV[1]) -- see release.lua
  local taken = redis.call('exists', KEYS[1])
  if taken == 0 then
    wake()
  end
  return {0, 0, taken}
end
redis.call('pexpire', KEYS[1], ARGV[4])
local refused = wake()
return refused and {1, 0, refused} or 1
