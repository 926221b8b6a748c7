-- Prelude of every script that reads a clock (contract §11: whole epoch seconds, floored).
-- ARGV[1]: now in seconds, or '' for the server's own clock.
-- ARGV[2]: the lease in whole seconds, or '' for one that never ends.
local now = ARGV[1]
if now == '' then
  local time = redis.call('TIME')
  now = time[1] .. '.' .. string.format('%06d', time[2])
end
local second = math.floor(tonumber(now))
-- As text: Redis would write a Lua number out anew for each member that it scores.
local deadline = '+inf'
if ARGV[2] ~= '' then
  deadline = string.format('%.0f', second + tonumber(ARGV[2]))
end
