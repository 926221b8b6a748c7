-- Laravel layout: moves what is due to the ready list byte for byte, with a notify token each
-- (contract §11B.3).
local function migrate(from, ready, notify, limit)
  local due = redis.call('ZRANGEBYSCORE', from, '-inf', second, 'LIMIT', 0, limit)
  if #due == 0 then
    return 0
  end
  -- A key of the wrong type has to fail here, before anything is taken.
  redis.call('LLEN', ready)
  redis.call('LLEN', notify)
  redis.call('ZREMRANGEBYRANK', from, 0, #due - 1)
  for first = 1, #due, 100 do
    local last = math.min(first + 99, #due)
    local tokens = {}
    for i = first, last do
      tokens[#tokens + 1] = 1
    end
    redis.call('RPUSH', ready, unpack(due, first, last))
    redis.call('RPUSH', notify, unpack(tokens))
  end
  return #due
end

-- Delayed first, then, where leases end, what was reserved and not settled in time.
local function migrate_all(ready, reserved, notify, delayed, limit)
  local moved = migrate(delayed, ready, notify, limit)
  if ARGV[2] ~= '' then
    moved = moved + migrate(reserved, ready, notify, limit)
  end
  return moved
end
