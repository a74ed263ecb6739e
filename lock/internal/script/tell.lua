-- What a script does once its effect can't be undone any more: nothing of it may make the script fail, for an error answer says that nothing
-- was done. Each returns the text of what the server refused, nil if nothing.
local function errorText(err) -- a table, or in Redis 6.2 a string
  return type(err) == 'table' and err.err or err
end

-- after runs the steps that follow the effect.
local function after(steps)
  local ran, err = pcall(steps)
  if not ran then
    return errorText(err)
  end
end

-- tell publishes a message. It returns first how many heard it. Of a server that doesn't know the command, as one before Redis 7 doesn't know
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
