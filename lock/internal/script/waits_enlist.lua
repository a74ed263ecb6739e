-- Adds a client to the set of the clients that have waits, and removes those that have expired.
--
-- KEYS[1]  the clients that have waits: a sorted set of client -> expiry, ms
-- ARGV[1]  the client: the random digits in its owners
-- ARGV[2]  how long it stays there, ms
--
-- Returns  1. Safe to run twice.
local ms = math.floor(now / 1000)
redis.call('pexpire', KEYS[1], ARGV[2])
redis.call('zremrangebyscore', KEYS[1], '-inf', string.format('%.0f', ms))
redis.call('zadd', KEYS[1], string.format('%.0f', ms + ARGV[2]), ARGV[1])
redis.call('pexpire', KEYS[1], ARGV[2])
return 1
