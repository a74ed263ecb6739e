-- What a release begins with: the owner's entry in the lock, and what its '@lockdog' says; either may be missing. It comes after channel.lua,
-- marks.lua and tell.lua.
local channel = tagged(channels, KEYS[1])
local found = redis.call('hmget', KEYS[1], ARGV[1], '@lockdog')
local mark, fair = string.byte(found[2] or '', 1, 2)
local othersWait, fairWaits = mark == waitMark, fair == fairMark
local listening -- to the channel; nil = not counted
local refused -- the text of what the server refused of the steps that tell of the release
local nextClient, calledAt -- the tag of the client that is to be called, and the time, as text
local given -- the lock has been given to somebody else, and taken back

-- settle brings the set of those that wait up to date, once the lock is given back: what refuses that must leave the set as it was.
local takeOut, add = ARGV[6] or '', ARGV[7] or ''
local settle
if takeOut ~= '' then
  settle = function()
    redis.pcall('zrem', tagged('lockdog_wait:', KEYS[1]), takeOut)
  end
end
