-- demoted finds out whether an error that is to be one of several answers is a replica's. It returns it as the answer to all: go-redis
-- closes the connection at that, and at nothing else that it may be told in a list. Open, it would lead to the old primary for good.
local function demoted(text)
  local at = type(text) == 'string' and string.find(text, 'READONLY ', 1, true)
  return at and {err = string.sub(text, at)}
end
