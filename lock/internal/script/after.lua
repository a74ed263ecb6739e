-- What a script does once its effect can't be undone any more: nothing of it may make the script fail, for an error answer says that nothing
-- was done. It returns the text of what the server refused, nil if nothing.
local function after(steps)
  local ran, err = pcall(steps)
  if not ran then
    return type(err) == 'table' and err.err or err -- in Redis 6.2 it is a string
  end
end
