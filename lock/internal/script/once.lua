-- The beginning of the scripts that change the number of a semaphore or a latch without granting or ending a lease.
-- While the receipt is kept, a change is made once for its owner, however often the script runs.
--
-- KEYS[1]  the semaphore or the latch: a number; absent = 0
-- KEYS[2]  the owner's receipt: exists once the change was made
-- KEYS[..] after the script's other keys: receipts that aren't needed any more. They are deleted with the change
-- ARGV[1]  owner
-- ARGV[2]  channel that waiters listen on
-- ARGV[3]  'publish', or 'spublish' where channels are sharded
-- ARGV[4]  not-after: the server time in µs after which this call must write nothing; 0 = unknown
-- ARGV[5]  how long the receipt is kept, ms
--
-- Returns  {1, now}     done, by this call or an earlier one
--          {0, now, 0}  not done: its condition isn't met
--          {3, now}     came too late, wrote nothing
if redis.call('exists', KEYS[2]) == 1 then
  return {1, now}
end
if late(ARGV[4]) then
  return {3, now}
end
local value = redis.call('get', KEYS[1])
if value and not isNumber(value) then
  return noNumber()
end

-- keepReceipt writes the receipt, and deletes the receipts from KEYS[spent] on. A full Redis refuses SET and INCRBY,
-- but not after a DEL in the same script.
local function keepReceipt(spent)
  redis.call('del', KEYS[2], unpack(KEYS, spent))
  redis.call('set', KEYS[2], '1', 'px', ARGV[5])
end

-- add writes the receipt, adds delta to the counter, and publishes message(new number) unless that is false. It returns
-- the reply of the script and the new number. If a command is refused (by an ACL), the change and the receipt are
-- undone, and add returns the error alone. INCRBY keeps an expiry that somebody set; SET would remove it.
local function add(delta, spent, message)
  keepReceipt(spent)
  local left = redis.pcall('incrby', KEYS[1], string.format('%.0f', delta))
  if type(left) == 'table' then
    redis.call('del', KEYS[2])
    return left
  end
  local text, heard, refused = message(left)
  if text then
    heard, refused = tell(ARGV[3], ARGV[2], text)
  end
  if refused then
    if value then
      redis.call('incrby', KEYS[1], string.format('%.0f', -delta))
    else
      redis.call('del', KEYS[1])
    end
    redis.call('del', KEYS[2])
    return redis.error_reply(refused)
  end
  return {1, now}, left
end

-- set writes the receipt, sets the counter to ARGV[6], and publishes message unless that is false. It returns the reply
-- of the script. If the message is refused (by an ACL), all is undone. A full Redis refuses the first command.
local function set(message)
  redis.call('set', KEYS[2], '1', 'px', ARGV[5])
  redis.call('set', KEYS[1], ARGV[6])
  local heard, refused
  if message then
    heard, refused = tell(ARGV[3], ARGV[2], message)
  end
  if refused then
    redis.call('del', KEYS[1], KEYS[2])
    return redis.error_reply(refused)
  end
  if KEYS[3] then
    redis.pcall('del', unpack(KEYS, 3))
  end
  return {1, now}
end
