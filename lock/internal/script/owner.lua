-- isOwner says whether that is an owner as lockdog or Redisson names one: '<client id>:<16 hex digits>-<number>', or '<id>:<thread>'. A writer's has
-- ':write' after it, and one in a transaction of Redisson ':' and 32 hex digits after that. IsOwner in owner.go is the same.
local function isOwner(name)
  local function named(text)
    text = string.match(text, '^(.+):write$') or text
    return string.find(text, '^.+:%-?%d+$') or string.find(text, '^[^:]+:%x%x%x%x%x%x%x%x%x%x%x%x%x%x%x%x%-%d+$')
  end
  local before, id = string.match(name, '^(.+):(%x+)$')
  return named(name) or id and #id == 32 and named(before)
end

-- isCount says whether that is how often an owner entered. IsCount in owner.go is the same.
local function isCount(text)
  return #text <= 10 and string.find(text, '^[1-9]%d*$')
end
