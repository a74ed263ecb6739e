-- holderOf finds in the hash of a lock its holder other than the owner, '' = none; the '@lockdog' field, '' = none; and whether the owner is in it.
local function holderOf(hash, owner)
  local holder, meta, own = '', '', false
  for i = 1, #hash, 2 do
    if hash[i] == '@lockdog' then
      meta = hash[i + 1]
    elseif hash[i] == owner then
      own = true
    elseif holder == '' and hash[i] ~= 'mode' then -- which is of a read-write lock
      holder = hash[i]
    end
  end
  return holder, meta, own
end
