-- near is true if the lock may go to a waiter of the same client: the lock is the owner's, no other client listens on
-- the lock's channel, and the lock has no mark of waiters for a FairMutex. A client that polls isn't seen. Needs
-- release_begin.lua.
--
-- ARGV[13]  how many of the channel's subscribers are this client's, 0 or 1; any others are of other clients
local near = false
if found[1] and not fairWaits then
  listening = redis.pcall('pubsub', ARGV[3], channel)[2] -- nil if refused: next.lua, if it runs, counts again
  near = listening == 0 or listening == 1 and ARGV[13] == '1'
end
