-- Runs several operations, each as if it were alone. An operation is a call of a script, which is a function in
-- 'operations'.
--
-- KEYS  the keys of the operations, in the form of the arguments below
-- ARGV  0, or the index in ARGV at which the keys begin instead of KEYS: in a cluster no command may have keys of
--       several slots. Then, for each group of operations with the same script and numbers of keys and arguments:
--         the script's name
--         the number of its operations
--         a letter for each key: '=' all operations have the same, '.' each has its own
--         a letter for each argument
--         for each argument its value, if it is the same for all, or the value of each operation
--       A value that all have is sent once: to read it for each operation would take as long as the commands.
--
-- Returns  {n, reply, ...}: n successive operations have that reply; the reply of one that failed is the error's text.
--          Or, at a replica, one error for all: see demoted.lua
local answers, answered, previous = {}, 0

-- columns finds the values that belong to the letters. The values are in the list sent, from the index at on. columns
-- writes the value of each letter '=' into the list places. It returns the positions of the letters '.'; for each of
-- these positions, the index just before its value for the first operation; and the index just after all the values.
local function columns(letters, sent, at, count, places)
  local own, before = {}, {}
  for i = 1, #letters do
    if string.sub(letters, i, i) == '=' then
      places[i] = sent[at]
      at = at + 1
    else
      own[#own + 1], before[i] = i, at - 1
      at = at + count
    end
  end
  return own, before, at
end

local named, key, arg, last = KEYS, 1, 2, #ARGV
if ARGV[1] ~= '0' then
  named, key = ARGV, tonumber(ARGV[1])
  last = key - 1
end
while arg <= last do
  local name, count = ARGV[arg], tonumber(ARGV[arg + 1])
  local keys, args = {}, {} -- reused for each operation: new tables would cost as much as a command
  local ownKeys, beforeKey, ownArgs, beforeArg
  ownKeys, beforeKey, key = columns(ARGV[arg + 2], named, key, count, keys)
  ownArgs, beforeArg, arg = columns(ARGV[arg + 3], ARGV, arg + 4, count, args)

  local run, keyCount, argCount = operations[name], #ownKeys, #ownArgs
  for i = 1, count do
    for j = 1, keyCount do
      local place = ownKeys[j]
      keys[place] = named[beforeKey[place] + i]
    end
    for j = 1, argCount do
      local place = ownArgs[j]
      args[place] = ARGV[beforeArg[place] + i]
    end
    local _, answer = pcall(run, keys, args)
    if type(answer) ~= 'number' then
      if type(answer) == 'table' and answer.err then
        -- The error is sent as text: at some errors in a list, go-redis stops reading the reply, but still reuses the
        -- connection.
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
