-- Runs several operations one after the other, each as if it were alone: the scripts named in 'operations'.
--
-- KEYS  the keys of the operations
-- ARGV  of each operation: its name, the number of its keys and of its arguments, its arguments
--
-- Returns  the answer of each operation, or its error
local answers = {}
local key, arg = 0, 1
while ARGV[arg] do
  local keys, args = {}, {}
  for i = 1, tonumber(ARGV[arg + 1]) do
    key = key + 1
    keys[i] = KEYS[key]
  end
  local count = tonumber(ARGV[arg + 2])
  for i = 1, count do
    args[i] = ARGV[arg + 2 + i]
  end
  local ran, answer = pcall(operations[ARGV[arg]], keys, args)
  if not ran and type(answer) ~= 'table' then -- before Redis 7
    answer = {err = answer}
  elseif not ran then
    answer = {err = answer.err}
  end
  answers[#answers + 1] = answer
  arg = arg + 3 + count
end
return answers
