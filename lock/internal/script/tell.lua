-- tell publishes a message. It returns the number of subscribers that got it, and the error's text if it was refused.
-- It raises no error, because the script has already written.
local function tell(publish, channel, message)
  local heard = redis.pcall(publish, channel, message)
  if type(heard) == 'table' then
    return 0, heard.err
  end
  return heard
end
