-- Renews many leases, in either layout. ZSCORE tells a lease that is gone from one that ends in the
-- same second anyway, which ZADD XX CH cannot.
-- KEYS: the sorted set of deadlines. ARGV: now, lease, then the members.
-- Gives {now, {numbers of those that are gone}}.
local gone, held, raised = {}, {}, {}
local latest = tonumber(deadline)
for i = 3, #ARGV do
  local score = redis.call('ZSCORE', KEYS[1], ARGV[i])
  if not score then
    gone[#gone + 1] = i - 2
  elseif tonumber(score) < latest then
    held[#held + 1] = ARGV[i]
    raised[#raised + 1] = deadline
    raised[#raised + 1] = ARGV[i]
  end
end
if #held > 0 then
  -- Taken out first: a renewal takes no memory, and must go on where none is left for a plain ZADD.
  redis.call('ZREM', KEYS[1], unpack(held))
  redis.call('ZADD', KEYS[1], unpack(raised))
end
return {now, gone}
