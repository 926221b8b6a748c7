-- Settles many, each behind its own gate (contract §11A.3): a reservation whose deadline member is
-- gone was swept or settled before, and nothing of it is touched.
-- KEYS: processing, deadlines, then each list that a copy goes to.
-- ARGV: the number of acks and the member of each, then for each copy the index of its list in KEYS, the
-- member and the body; either kind oldest reservation first.
-- Gives {{numbers of the stale}, {'number refusal', ...}}.
local stale, refused, let_go = {}, {}, {}

-- Whether `raw` is what `member` reserved. Without cutting it out: a new string costs Lua more than
-- the command that would use it.
local function is_of(member, raw)
  return #member == #raw + 33 and string.find(member, raw, 34, true)
end

-- Takes what was let go of out of the list. The oldest stand at its head: one LPOP takes them all, and
-- what is still held of them goes back in its order. The rest by LREM, which walks from the head.
local function take_out(list)
  local count, found, member = #let_go, 0, let_go[1]
  local first = redis.call('LINDEX', list, 0)
  if first and is_of(member, first) then
    local head, still_held = redis.call('LPOP', list, count), {}
    for i = 1, #head do
      local raw = head[i]
      if is_of(member, raw) then
        found = found + 1
        member = let_go[found + 1]
      else
        still_held[#still_held + 1] = raw
      end
    end
    for i = #still_held, 1, -1 do
      redis.call('LPUSH', list, still_held[i])
    end
  end
  for i = found + 1, count do
    redis.call('LREM', list, 1, string.sub(let_go[i], 34))
  end
end

local acks = tonumber(ARGV[1])
for number = 1, acks do
  local member = ARGV[number + 1]
  if redis.call('ZREM', KEYS[2], member) == 1 then
    let_go[#let_go + 1] = member
  else
    stale[#stale + 1] = number
  end
end
for at = acks + 2, #ARGV, 3 do
  local number = acks + (at - acks + 1) / 3
  local target, member, body = tonumber(ARGV[at]), ARGV[at + 1], ARGV[at + 2]
  if redis.call('ZSCORE', KEYS[2], member) then
    local refusal = copy_then(function()
      redis.call('ZREM', KEYS[2], member)
      let_go[#let_go + 1] = member
    end, 'list', 'RPUSH', KEYS[target], body)
    if refusal then
      refused[#refused + 1] = number .. ' ' .. refusal
    end
  else
    stale[#stale + 1] = number
  end
end
if #let_go > 0 then
  take_out(KEYS[1])
end
return {stale, refused}
