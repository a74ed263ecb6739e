-- Runs several operations one after the other, each as if it were alone: the scripts named in 'operations'.
--
-- KEYS  the keys of the operations
-- ARGV  of each operation: its name, the number of its keys and of its arguments, its arguments
--
-- Returns  the answer of each operation, or its error
local answers = {}
local keys, args = {}, {} -- of one operation after the other: making them anew would cost as much as a command
local key, arg = 0, 1
while ARGV[arg] do
  local count = tonumber(ARGV[arg + 1])
  for i = 1, count do
    keys[i] = KEYS[key + i]
  end
  for i = count + 1, #keys do
    keys[i] = nil
  end
  key = key + count
  count = tonumber(ARGV[arg + 2])
  for i = 1, count do
    args[i] = ARGV[arg + 2 + i]
  end
  for i = count + 1, #args do
    args[i] = nil
  end
  local ran, answer = pcall(operations[ARGV[arg]], keys, args)
  if not ran then
    answer = {err = type(answer) == 'table' and answer.err or answer} -- before Redis 7 it is the text
  end
  answers[#answers + 1] = answer
  arg = arg + 3 + count
end
return answers
