-- Settles many, each behind its own gate (contract §11A.3): a reservation whose deadline member is
-- gone was swept or settled before, and nothing of it is touched.
-- KEYS: processing, deadlines, then each list that a copy goes to.
-- ARGV: for each settlement, oldest reservation first, the index of its list in KEYS (0 for an ack),
-- the member, and for a copy the body.
-- Gives {{numbers of the stale}, {'number refusal', ...}}.
local stale, refused, let_go = {}, {}, {}

-- Whether `raw` is what `member` reserved. Without cutting it out: a new string costs Lua more than
-- the command that would use it.
local function is_of(member, raw)
  return #member == #raw + 33 and string.find(member, raw, 34, true)
end

-- Takes what was let go of out of the list. The oldest stand at its head: one LTRIM takes them all,
-- and the few between them that are still held go back in their order. The rest by LREM, which walks
-- from the head.
local function take_out(list)
  local count, found = #let_go, 0
  local passed, seen, between = {}, 0, 0
  local member, head = let_go[1], {}
  local first = redis.call('LINDEX', list, 0)
  if first and is_of(member, first) then
    head = redis.call('LRANGE', list, 0, count - 1)
  end
  for i = 1, #head do
    local raw = head[i]
    if is_of(member, raw) then
      found, seen, between = found + 1, i, #passed
      member = let_go[found + 1]
    else
      passed[#passed + 1] = raw
    end
  end
  if seen > 0 then
    redis.call('LTRIM', list, seen, -1)
    for i = between, 1, -1 do
      redis.call('LPUSH', list, passed[i])
    end
  end
  for i = found + 1, count do
    redis.call('LREM', list, 1, string.sub(let_go[i], 34))
  end
end

local at, number = 1, 1
while ARGV[at] do
  local target, member = ARGV[at], ARGV[at + 1]
  if target == '0' then
    if redis.call('ZREM', KEYS[2], member) == 1 then
      let_go[#let_go + 1] = member
    else
      stale[#stale + 1] = number
    end
    at = at + 2
  else
    if redis.call('ZSCORE', KEYS[2], member) then
      local refusal = copy_then(function()
        redis.call('ZREM', KEYS[2], member)
        let_go[#let_go + 1] = member
      end, 'list', 'RPUSH', KEYS[tonumber(target)], ARGV[at + 2])
      if refusal then
        refused[#refused + 1] = number .. ' ' .. refusal
      end
    else
      stale[#stale + 1] = number
    end
    at = at + 3
  end
  number = number + 1
end
if #let_go > 0 then
  take_out(KEYS[1])
end
return {stale, refused}
