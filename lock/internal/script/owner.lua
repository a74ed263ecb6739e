-- isOwner says whether that is an owner as lockdog or Redisson names one: '<client id>:<16 hex digits>-<number>', or '<id>:<thread>'. A writer's has
-- ':write' after it. IsOwner in owner.go is the same.
local function isOwner(name)
  name = string.match(name, '^(.+):write$') or name
  return string.find(name, '^.+:%-?%d+$') or string.find(name, '^[^:]+:%x%x%x%x%x%x%x%x%x%x%x%x%x%x%x%x%-%d+$')
end

-- isCount says whether that is how often an owner entered. IsCount in owner.go is the same.
local function isCount(text)
  return #text <= 10 and string.find(text, '^[1-9]%d*$')
end
