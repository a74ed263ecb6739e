-- The server's time in µs, which stands still while a script runs.
local time = redis.call('time')
local now = time[1] * 1000000 + time[2]
