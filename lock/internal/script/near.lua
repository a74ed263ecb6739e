-- near says whether the lock may go straight to a waiter of the client that releases it: no other process waits, and nobody in the queue of a
-- FairMutex. It comes after entry.lua.
--
-- ARGV[13]  how many of the channel's subscribers are our own, 0 or 1; with more, another process waits
local near = false
if found[1] and not fairWaits then
  listening = redis.pcall('pubsub', ARGV[3], channel)[2] -- refused, it is asked for again by release.lua, which says so
  near = listening == 0 or listening == 1 and ARGV[13] == '1'
end
