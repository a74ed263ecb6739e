-- Says who holds a read-write lock: the writer, or of the readers the one with the longest lease. The keys are those of rw.lua.
--
-- Returns  {now, remaining ms (-2 free, -1 no expiry), and unless it is free: holder, its count, '@lockdog', its mark or '',
--          'mode', 'read' or 'write', 'readers', how many}
local seen = look('', true)
if seen.alien then
  return seen.alien
end
local one = seen.writer or seen.longest
if not one then
  redis.call('hdel', KEYS[1], '') -- no such field; refused by a replica, which may lack what its primary has
  return {now, -2}
end
return {now, shown(one.left), one.name, tostring(one.count), '@lockdog', said(one.name),
  'mode', seen.writer and 'write' or 'read', 'readers', tostring(seen.readers)}
