-- foreign returns an error if a hash (HGETALL's reply) isn't a lock: other programs' hashes are never changed. In a
-- lock each field but 'mode' and '@lockdog' is an owner, and its value is the number of times that it entered. With
-- 'mode' there is no '@lockdog'. Without 'mode' there is one owner, which may have any name if '@lockdog' is there.
-- Needs owner.lua.
local function foreign(hash)
  local mode, meta, owners, named = nil, nil, 0, true
  for i = 1, #hash, 2 do
    local field, value = hash[i], hash[i + 1]
    if field == 'mode' then
      mode = value
    elseif field == '@lockdog' then
      meta = value
    elseif isCount(value) then
      owners, named = owners + 1, named and isOwner(field)
    else
      mode = ''
      break
    end
  end
  if mode == 'read' or mode == 'write' then
    if named and owners > 0 and not meta then
      return
    end
  elseif not mode and owners == 1 and (named or meta) then
    return
  end
  return redis.error_reply('WRONGTYPE The key holds a hash that is no lock')
end
