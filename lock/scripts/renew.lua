-- Renews many leases of one node in one call. A lease is renewed only for its owner.
--
-- KEYS[1]  the first lock: routes the call. The names are in ARGV because in a cluster declared keys
--          must share a slot, while a script may touch undeclared keys of any slot of its own node.
-- ARGV[1]  not-after: the server time in µs after which this call must write nothing; 0 = unknown
-- ARGV[2..] per lease: the lock, owner, lease in ms
--
-- Returns  {now, result...}, one result per lease:
--          1 renewed, 0 the lock is gone, 2 it has another owner, 3 came too late, or the error's text.
--
-- Every key is touched through pcall, so that one bad key never spoils the others' renewal.
local time = redis.call('time')
local now = time[1] * 1000000 + time[2]
local notAfter = tonumber(ARGV[1])
local late = notAfter > 0 and now > notAfter

local out = {now}
for i = 2, #ARGV, 3 do
  local result
  local own = redis.pcall('hexists', ARGV[i], ARGV[i + 1])
  if type(own) == 'table' then
    result = own.err
  elseif own == 0 then
    local exists = redis.pcall('exists', ARGV[i])
    result = exists == 1 and 2 or 0
  elseif late then
    result = 3
  else
    local set = redis.pcall('pexpire', ARGV[i], ARGV[i + 2])
    result = type(set) == 'table' and set.err or set
  end
  out[#out + 1] = result
end
return out
