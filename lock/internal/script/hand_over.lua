-- Gives the lock straight to a waiter of the same client, where no other process waits. Else it goes on as release.lua, which follows it.
--
-- KEYS[1]  the lock
-- KEYS[2]  the token counter of the lock's slot
-- ARGV[1]  owner
-- ARGV[2..4]  see release.lua
-- ARGV[5]  next owner ...
-- ARGV[6]  its lease, ms
-- ARGV[7]  not-after: the server time in µs after which nothing is handed over; 0 = unknown
-- ARGV[8]  its traceparent, '' = none
-- ARGV[9]  see near.lua
--
-- Returns  now              handed over, and the time is the token
--          {2, now, token}  handed over; the clock was behind the last token
--          or what release.lua returns
--
-- The old owner's entry goes last: where a step is refused (by an ACL, say), the release that follows still finds it, and deletes all. The
-- lock is never without an entry, for a slot on its way to another node takes no key that it hasn't. And the first write is one that a full
-- Redis takes: then it takes the others, too. It comes after clock.lua and token.lua, and they after near.lua: where another process waits,
-- only a batch asks for the time.
if not late(ARGV[7]) and redis.pcall('pexpire', KEYS[1], ARGV[6]) == 1 then
  local drawn, token, meta = pcall(draw, KEYS[2]) -- the counter may be on its way to another node
  if drawn then
    if ARGV[8] ~= '' then
      meta = meta .. ' ' .. ARGV[8]
    end
    if type(redis.pcall('hset', KEYS[1], ARGV[5], '1', '@lockdog', meta)) == 'number'
        and redis.pcall('hdel', KEYS[1], ARGV[1]) == 1 then
      if token == now then
        return now
      end
      return {2, now, token}
    end
  end
end
