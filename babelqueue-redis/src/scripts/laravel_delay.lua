-- KEYS: delayed. ARGV: now, '', the delay in whole seconds rounded up, then the bodies. No notify
-- token: they get it when they are due (contract §11B.2).
local members = {}
for i = 4, #ARGV do
  members[#members + 1] = second + tonumber(ARGV[3])
  members[#members + 1] = ARGV[i]
end
redis.call('ZADD', KEYS[1], unpack(members))
return #ARGV - 3
