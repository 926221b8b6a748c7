-- KEYS: the id to remember, the claim on it. ARGV: for how many milliseconds.
redis.call('SET', KEYS[1], 1, 'PX', ARGV[1])
redis.call('DEL', KEYS[2])
return 1
