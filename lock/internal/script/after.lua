-- after runs steps after the effect of a script, which can't be undone. It returns the error's text, nil if there is
-- none, and never raises an error: an error reply would mean that nothing was done.
local function after(steps)
  local ran, err = pcall(steps)
  if not ran then
    return type(err) == 'table' and err.err or err -- in Redis 6.2 err is a string
  end
end
