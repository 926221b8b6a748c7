-- KEYS: delayed. ARGV: now, '', the delay in whole seconds rounded up, then the bodies. No notify
-- token: they get it when they are due (contract §11B.2).
local members = {}
local due = string.format('%.0f', second + tonumber(ARGV[3]))
for i = 4, #ARGV do
  members[#members + 1] = due
  members[#members + 1] = ARGV[i]
end
redis.call('ZADD', KEYS[1], unpack(members))
return #ARGV - 3
