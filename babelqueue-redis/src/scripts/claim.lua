-- KEYS: the remembered id, the claim on it. ARGV: the claim's token, its lease in milliseconds.
-- Gives 'seen', 'held' or 'granted'; also to a call that is sent again because its answer was lost.
if redis.call('EXISTS', KEYS[1]) == 1 then
  return 'seen'
end
if redis.call('SET', KEYS[2], ARGV[1], 'NX', 'PX', ARGV[2]) then
  return 'granted'
end
if redis.call('GET', KEYS[2]) == ARGV[1] then
  return 'granted'
end
return 'held'
