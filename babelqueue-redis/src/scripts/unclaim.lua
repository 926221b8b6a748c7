-- KEYS: the claim. ARGV: its token. A claim that somebody else has by now stays.
if redis.call('GET', KEYS[1]) == ARGV[1] then
  return redis.call('DEL', KEYS[1])
end
return 0
