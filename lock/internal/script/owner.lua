-- isOwner reports whether name has the form of an owner of lockdog, '<client id>:<16 hex digits>-<number>', or of
-- Redisson, '<id>:<thread>'. ':write' follows for a writer, then ':' and 32 hex digits in a transaction of Redisson.
-- IsOwner in owner.go is the same.
local function isOwner(name)
  local function named(text)
    text = string.match(text, '^(.+):write$') or text
    return string.find(text, '^.+:%-?%d+$') or string.find(text, '^[^:]+:%x%x%x%x%x%x%x%x%x%x%x%x%x%x%x%x%-%d+$')
  end
  local before, id = string.match(name, '^(.+):(%x+)$')
  return named(name) or id and #id == 32 and named(before)
end

-- isCount reports whether text may be the number of times that an owner entered. IsCount in owner.go is the same.
local function isCount(text)
  return #text <= 10 and string.find(text, '^[1-9]%d*$')
end
