-- tellForced adds an owner whose lock was deleted to held, up to ten, and notifies the owner's client. client is nil if
-- the owner isn't lockdog's. The message also names the caller. tellForced returns the error's text if the message was
-- refused. Fields that aren't owners are skipped.
local function tellForced(held, owner, client)
  if owner == '@lockdog' or owner == 'mode' then
    return
  end
  if #held < 12 then
    held[#held + 1] = owner
  end
  if client then
    local _, refused = tell('publish', ARGV[3] .. client, owner .. ' forced by ' .. ARGV[4])
    return refused
  end
end
