-- Writes a copy before its original is let go of, so that a refused write (a dead-letter key of the
-- wrong type, a missing right) loses nothing. Out of memory the order is turned round: once a script
-- has written, Redis lets it go on, and a move frees what it takes.
-- Gives nothing where all went well, else the server's refusal, and then nothing was touched.
local function copy_then(let_go, kind, command, key, ...)
  local answer = redis.pcall(command, key, ...)
  local refusal = type(answer) == 'table' and answer['err']
  if not refusal then
    let_go()
    return nil
  end
  local found = redis.call('TYPE', key)['ok']
  if string.find(refusal, 'OOM', 1, true) and (found == kind or found == 'none') then
    let_go()
    redis.call(command, key, ...)
    return nil
  end
  return refusal
end
