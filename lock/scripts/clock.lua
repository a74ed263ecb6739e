-- The server's time in µs, which stands still while a script runs; and as text: Lua's own form would cut it short.
local time = redis.call('time')
local now = time[1] * 1000000 + time[2]
local nowText = string.format('%.0f', now)
