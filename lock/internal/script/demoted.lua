-- demoted returns the error reply of a replica if that is the text, one of several replies. It must be the reply of the
-- whole script: go-redis then closes the connection, but not at an error in a list. A connection that stays open would
-- lead to the old primary for ever.
local function demoted(text)
  local at = type(text) == 'string' and string.find(text, 'READONLY ', 1, true)
  return at and {err = string.sub(text, at)}
end
