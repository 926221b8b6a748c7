-- Settles many in the Laravel layout (contract §11B.6-8).
-- KEYS: reserved, delayed, then a ready and a notify list for each dead-letter queue.
-- ARGV: now, '', then for each settlement a verb and its words:
--   ack     member
--   release member delay body      (Laravel's own: not gated)
--   again   member delay body      (gated: a release after another settlement, which may have been run)
--   dead    member ready-index body
-- Gives {{numbers of the stale}, {'number refusal', ...}}.
local stale, refused = {}, {}
local at, number = 3, 1
while ARGV[at] do
  local verb, member = ARGV[at], ARGV[at + 1]
  local held = true
  local refusal
  local function let_go()
    held = redis.call('ZREM', KEYS[1], member) == 1
  end
  if verb == 'ack' then
    let_go()
    at = at + 2
  else
    if verb ~= 'release' then
      held = redis.call('ZSCORE', KEYS[1], member)
    end
    local where, body = tonumber(ARGV[at + 2]), ARGV[at + 3]
    if not held then
      refusal = nil
    elseif verb == 'dead' then
      refusal = copy_then(let_go, 'list', 'RPUSH', KEYS[where], body)
      if not refusal then
        redis.call('RPUSH', KEYS[where + 1], 1)
      end
    else
      refusal = copy_then(let_go, 'zset', 'ZADD', KEYS[2], second + where, body)
      -- The copy is written whether or not the reservation was still there.
      held = true
    end
    at = at + 4
  end
  if refusal then
    refused[#refused + 1] = number .. ' ' .. refusal
  elseif not held then
    stale[#stale + 1] = number
  end
  number = number + 1
end
return {stale, refused}
