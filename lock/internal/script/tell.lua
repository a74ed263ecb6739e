-- tell publishes a message. It returns first how many heard it, and then the text of what the server refused, for the effect can't be undone any
-- more: nothing of this may make the script fail. Of a server that doesn't know the command, as one before Redis 7 doesn't know
-- SPUBLISH, nobody can listen but to the other kind of channel.
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
