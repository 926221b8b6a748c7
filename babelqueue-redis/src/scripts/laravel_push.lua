-- KEYS: ready, notify. ARGV: the bodies. One notify token each (contract §11B.1).
redis.call('LLEN', KEYS[2])
local tokens = {}
for i = 1, #ARGV do
  tokens[i] = 1
end
redis.call('RPUSH', KEYS[1], unpack(ARGV))
redis.call('RPUSH', KEYS[2], unpack(tokens))
return #ARGV
