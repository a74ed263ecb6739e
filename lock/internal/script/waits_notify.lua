-- Asks a client to search for a deadlock now.
--
-- KEYS[1]  a lock that the client holds: it hears what is published on its control channel at the lock's node
-- ARGV[1]  its control channel
-- ARGV[2]  the message
--
-- Returns  how many subscribers got the message
return redis.call('publish', ARGV[1], ARGV[2])
