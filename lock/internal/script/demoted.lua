-- demoted returns an error reply if text, the result for one lock of several, is a replica's error. This error must be
-- the reply of the whole script: go-redis closes the connection after such a reply, but not after an error in a list. A
-- connection that stayed open would lead to the old primary for ever.
local function demoted(text)
  local at = type(text) == 'string' and string.find(text, 'READONLY ', 1, true)
  return at and {err = string.sub(text, at)}
end
