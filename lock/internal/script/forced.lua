-- tellForced appends an owner whose lock was just deleted to the list held, unless the list has ten owners. It
-- publishes a message to the owner's client. The message also names the caller. If client is nil, the owner isn't
-- lockdog's, and nobody is notified. tellForced returns the error's text if the message was refused. It skips fields of
-- the hash that aren't owners.
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
