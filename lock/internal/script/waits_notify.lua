-- Has a client look for a deadlock now.
--
-- KEYS[1]  a lock that it holds: it listens there
-- ARGV[1]  its control channel
-- ARGV[2]  the message
--
-- Returns  how many heard it.
return redis.call('publish', ARGV[1], ARGV[2])
