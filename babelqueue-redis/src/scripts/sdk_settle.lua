-- Settles many, each behind its own gate (contract §11A.3): a reservation whose deadline member is
-- gone was swept or settled before, and nothing of it is touched.
-- KEYS: processing, deadlines, then each list that a copy goes to.
-- ARGV: for each settlement the index of its list in KEYS (0 for an ack), the member, and for a copy
-- the body.
-- Gives {{numbers of the stale}, {'number refusal', ...}}.
local stale, refused = {}, {}
local at, number = 1, 1
while ARGV[at] do
  local target, member = tonumber(ARGV[at]), ARGV[at + 1]
  if target == 0 then
    if redis.call('ZREM', KEYS[2], member) == 1 then
      redis.call('LREM', KEYS[1], 1, string.sub(member, 34))
    else
      stale[#stale + 1] = number
    end
    at = at + 2
  else
    if redis.call('ZSCORE', KEYS[2], member) then
      local refusal = copy_then(function()
        redis.call('ZREM', KEYS[2], member)
        redis.call('LREM', KEYS[1], 1, string.sub(member, 34))
      end, 'list', 'RPUSH', KEYS[target], ARGV[at + 2])
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
return {stale, refused}
