-- What is reserved for ever under these tokens (contract §11A.2 with recovery off): what a reserve took
-- whose answer was lost. Changes nothing.
-- KEYS: deadlines. ARGV: tokens. Gives {{number of the token, ...}, {raw, ...}}.
local number_of = {}
for number, token in ipairs(ARGV) do
  number_of[token] = number
end
local numbers, raws = {}, {}
for _, member in ipairs(redis.call('ZRANGEBYSCORE', KEYS[1], '+inf', '+inf')) do
  local number = number_of[string.sub(member, 1, 32)]
  if number then
    numbers[#numbers + 1] = number
    raws[#raws + 1] = string.sub(member, 34)
  end
end
return {numbers, raws}
