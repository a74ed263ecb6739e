-- Returns the holder of a read-write lock: the writer, or the reader with the longest lease. rw.lua describes KEYS.
--
-- Returns  {now, remaining ms (-2 free, -1 no expiry)}, and unless the lock is free: holder, its count, '@lockdog', its
--          mark or '', 'mode', 'read' or 'write', 'readers', the number of readers
local seen = look('', true)
if seen.alien then
  return seen.alien
end
local one = seen.writer or seen.longest
if not one then
  redis.call('hdel', KEYS[1], '') -- changes nothing: see inspect.lua
  return {now, -2}
end
return {now, shown(one.left), one.name, tostring(one.count), '@lockdog', said(one.name),
  'mode', seen.writer and 'write' or 'read', 'readers', tostring(seen.readers)}
