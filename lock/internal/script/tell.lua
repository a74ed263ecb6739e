-- tell publishes a message. It returns the number of subscribers that got it, and the error's text if it was refused.
-- It raises no error, because the script has already written. If the server doesn't know the command (SPUBLISH before
-- Redis 7), tell uses the other command: clients can only subscribe to that kind of channel there.
local function tell(publish, channel, message)
  local heard = redis.pcall(publish, channel, message)
  if type(heard) == 'table' and string.find(heard.err, 'nknown', 1, true) then
    if publish == 'publish' then
      heard = redis.pcall('spublish', channel, message)
    else
      heard = redis.pcall('publish', channel, message)
    end
  end
  if type(heard) == 'table' then
    return 0, heard.err
  end
  return heard
end
