-- SDK layout: gives what ran past its deadline back to the END of the ready list, bytes and attempts
-- unchanged (contract §11A.4). A member that is not `<32 hex>:<raw>`, or whose raw is no longer in
-- processing, is only removed.
local function sweep(ready, processing, deadlines, limit)
  local due = redis.call('ZRANGEBYSCORE', deadlines, '-inf', second, 'LIMIT', 0, limit)
  if #due == 0 then
    return 0
  end
  -- A key of the wrong type has to fail here, before anything is taken.
  redis.call('LLEN', ready)
  redis.call('LLEN', processing)
  local moved = 0
  for _, member in ipairs(due) do
    if #member >= 34 and string.byte(member, 33) == 58 then
      local raw = string.sub(member, 34)
      if redis.call('LREM', processing, 1, raw) == 1 then
        redis.call('RPUSH', ready, raw)
        moved = moved + 1
      end
    end
    redis.call('ZREM', deadlines, member)
  end
  return moved
end
