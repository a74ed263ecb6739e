-- Runs several operations, each as if it were alone. An operation is a call of a script, which is a function in
-- 'operations'. For several operations of one script, its function in 'together' is tried first, if there is one.
--
-- KEYS  the keys of the operations, in the form of the arguments below
-- ARGV  0, or the index in ARGV at which the keys begin instead of KEYS: in a cluster no command may have keys of
--       several slots. Then, for each script:
--         its name
--         the number of its operations
--         a letter for each key: '=' all operations have the same, '.' each has its own
--         a letter for each argument
--         for each argument its value, if it is the same for all, or the value of each operation
--       A value that all have is sent once: to read it for each operation would take as long as the commands.
--
-- Returns  {n, reply, ...}: n successive operations have that reply; the reply of one that failed is the error's text.
--          Or, at a replica, one error for all: see demoted.lua
local answers, answered, previous = {}, 0

-- columns finds the values of each letter in sent, from the index at on: that of operation i is at first + i * step. It
-- writes the values of letters '=' into places. It also returns the numbers of the letters '.', and the index that
-- follows the values.
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
  local keys, args = {}, {} -- reused for each operation: new tables would cost as much as a command
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
      if type(answer) == 'table' and answer.err then
        -- As text: at some errors in a list go-redis stops reading, and reuses the connection all the same.
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
