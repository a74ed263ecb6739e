-- Runs several operations, each as if it were alone: the scripts named in 'operations'. Those of one script come together. What all of them
-- have in common is sent once, for reading it again and again would take as long as the commands do; and where 'together' has a shorter way
-- for all of them, that is tried first.
--
-- KEYS  the keys of the operations, and
-- ARGV  0, or the place in ARGV where the keys begin, in place of KEYS: in a cluster, where no command may take keys of several slots. Then
--       the operations' arguments: of each script first its name, the number of operations, and a letter for each key and for each argument:
--       '=' all have the same, '.' each has its own. Then, for one letter after the other, the one value or each operation's.
--
-- Returns  the answer of each operation, or the text of its error: one for all in a row that have the same, after their number
local answers, answered, previous = {}, 0

-- columns says where in what was sent the values of each letter stand: that of the operation i at first + i * step. It puts the values
-- that all have in their places, and returns which are left, and where the next columns begin.
local function columns(letters, sent, at, count, places)
  local first, step, own = {}, {}, {}
  for i = 1, #letters do
    if string.sub(letters, i, i) == '=' then
      first[i], step[i], places[i] = at, 0, sent[at]
      at = at + 1
    else
      first[i], step[i], own[#own + 1] = at - 1, 1, i
      at = at + count
    end
  end
  return first, step, own, at
end

local named, key, arg, last = KEYS, 1, 2, #ARGV
if ARGV[1] ~= '0' then
  named, key = ARGV, tonumber(ARGV[1])
  last = key - 1
end
while arg <= last do
  local name, count = ARGV[arg], tonumber(ARGV[arg + 1])
  local keys, args = {}, {} -- of one operation after the other: making them anew would cost as much as a command
  local firstKey, keyStep, ownKeys, firstArg, argStep, ownArgs
  firstKey, keyStep, ownKeys, key = columns(ARGV[arg + 2], named, key, count, keys)
  firstArg, argStep, ownArgs, arg = columns(ARGV[arg + 3], ARGV, arg + 4, count, args)

  local done = {}
  if together[name] and count > 1 and named == KEYS then
    local worked, did = pcall(together[name], count, firstKey, keyStep, firstArg, argStep)
    if worked then
      done = did
    end
  end
  local run, keyCount, argCount = operations[name], #ownKeys, #ownArgs
  for i = 1, count do
    local answer = done[i]
    if not answer then
      for j = 1, keyCount do
        local place = ownKeys[j]
        keys[place] = named[firstKey[place] + i]
      end
      for j = 1, argCount do
        local place = ownArgs[j]
        args[place] = ARGV[firstArg[place] + i]
      end
      local _
      _, answer = pcall(run, keys, args)
    end
    if type(answer) ~= 'number' then
      if type(answer) == 'table' and answer.err then -- as text: at some errors within a list go-redis stops reading, and keeps the connection
        answer = answer.err
      end
      local refused = demoted(answer)
      if refused then
        return refused
      end
    end
    if answer == previous then
      answers[answered - 1] = answers[answered - 1] + 1
    else
      previous = answer
      answers[answered + 1], answers[answered + 2] = 1, answer
      answered = answered + 2
    end
  end
end
return answers
