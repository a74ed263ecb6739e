-- tellForced notes an owner whose lock was taken away, unless the field is none, and tells its client, if that is one of ours: first who did it,
-- then the owner alone, for clients that know no more. It returns what the server refused.
local function tellForced(held, owner, client)
  if owner == '@lockdog' or owner == 'mode' then
    return
  end
  if #held < 12 then
    held[#held + 1] = owner
  end
  if client then
    local _, refused = tell('publish', ARGV[3] .. client, owner .. ' forced by ' .. ARGV[4])
    local _, unheard = tell('publish', ARGV[3] .. client, owner)
    return unheard or refused
  end
end
