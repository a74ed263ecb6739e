-- What a release begins with: the owner's entry in the lock, and what its '@lockdog' says; either may be missing. It comes after channel.lua and
-- marks.lua.
local channel = tagged(channels, KEYS[1])
local found = redis.call('hmget', KEYS[1], ARGV[1], '@lockdog')
local mark, fair = string.byte(found[2] or '', 1, 2)
local othersWait, fairWaits = mark == waitMark, fair == fairMark
local listening -- to the channel; nil = not counted
