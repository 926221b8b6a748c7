-- Sweeps, then takes up to n from the head (contract §11A.2). One variadic LPOP, RPUSH and ZADD leave
-- what n single moves would, for a third less of the server's time.
-- KEYS: ready, processing, deadlines. ARGV: now, lease, batch (-1 = all), then a token for each of n.
-- Gives {now, {raw, ...}}, or {now, {}, the first deadline or ''} where there is nothing.
sweep(KEYS[1], KEYS[2], KEYS[3], ARGV[3])
-- A key of the wrong type has to fail here, before anything is taken.
redis.call('LLEN', KEYS[2])
redis.call('ZCARD', KEYS[3])
local taken = redis.call('LPOP', KEYS[1], #ARGV - 3)
if not taken or #taken == 0 then
  local first = redis.call('ZRANGE', KEYS[3], 0, 0, 'WITHSCORES')
  return {now, {}, first[2] or ''}
end
local members = {}
for i, raw in ipairs(taken) do
  members[2 * i - 1] = deadline
  members[2 * i] = ARGV[3 + i] .. ':' .. raw
end
redis.call('RPUSH', KEYS[2], unpack(taken))
redis.call('ZADD', KEYS[3], unpack(members))
return {now, taken}
