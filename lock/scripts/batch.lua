-- Runs several operations one after the other, each as if it were alone: the scripts named in 'operations'. Those of one script come
-- together, and what all of them have in common is sent once, for reading it again and again would take as long as the commands do.
--
-- KEYS  the keys of the operations, and
-- ARGV  0, or the place in ARGV where the keys begin, in place of KEYS. Then the operations' arguments: of each script first its name, the
--       number of operations, and a letter for each key and for each argument: '=' all have the same, '.' each has its own. Then come
--       those that all have, then the first operation's own, the second's own...
--
-- Returns  the answer of each operation, or the text of its error
local answers, answered = {}, 0

-- fill puts what all have in its places, and says which places are left, how many, and where in 'sent' what belongs there begins.
local function fill(places, letters, sent, at)
  local own, count = {}, 0
  for i = 1, #letters do
    if string.sub(letters, i, i) == '=' then
      places[i] = sent[at]
      at = at + 1
    else
      count = count + 1
      own[count] = i
    end
  end
  return own, count, at
end

local named, key, arg, last = KEYS, 1, 2, #ARGV
if ARGV[1] ~= '0' then
  named, key = ARGV, tonumber(ARGV[1])
  last = key - 1
end
while arg <= last do
  local run, count = operations[ARGV[arg]], tonumber(ARGV[arg + 1])
  local keys, args = {}, {} -- of one operation after the other: making them anew would cost as much as a command
  local ownKeys, ownArgs, keyCount, argCount
  ownKeys, keyCount, key = fill(keys, ARGV[arg + 2], named, key)
  ownArgs, argCount, arg = fill(args, ARGV[arg + 3], ARGV, arg + 4)
  for _ = 1, count do
    for i = 1, keyCount do
      keys[ownKeys[i]] = named[key]
      key = key + 1
    end
    for i = 1, argCount do
      args[ownArgs[i]] = ARGV[arg]
      arg = arg + 1
    end
    local _, answer = pcall(run, keys, args)
    if type(answer) ~= 'number' then
      if type(answer) == 'table' and answer.err then -- as text: at some errors within a list go-redis stops reading, and keeps the connection
        answer = answer.err
      end
      local refused = demoted(answer)
      if refused then
        return refused
      end
    end
    answered = answered + 1
    answers[answered] = answer
  end
end
return answers
