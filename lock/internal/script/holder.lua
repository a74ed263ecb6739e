-- holderOf returns from the hash of a lock: a holder other than owner, '' = none; '@lockdog', '' = none; and whether
-- owner is a holder.
local function holderOf(hash, owner)
  local holder, meta, own = '', '', false
  for i = 1, #hash, 2 do
    if hash[i] == '@lockdog' then
      meta = hash[i + 1]
    elseif hash[i] == owner then
      own = true
    elseif holder == '' and hash[i] ~= 'mode' then -- a read-write lock has that field
      holder = hash[i]
    end
  end
  return holder, meta, own
end
