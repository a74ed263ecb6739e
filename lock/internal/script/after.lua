-- after runs steps of a script that may already have written. It returns the text of an error, nil if there is none. It
-- never raises the error: an error reply of the script would mean that nothing was done.
local function after(steps)
  local ran, err = pcall(steps)
  if not ran then
    return type(err) == 'table' and err.err or err -- which of the two it is depends on the server
  end
end
