-- Migrates, then takes up to n from the head (contract §11B.4). The member in `reserved` counts this
-- delivery in; a body that cjson cannot decode, count or encode again is reserved as it is, and that
-- makes it poison. Nothing may fail after the LPOP: a script is not rolled back.
-- KEYS: ready, reserved, notify, delayed. ARGV: now, lease, batch (-1 = all), n.
-- Gives {now, {job, ...}, {reserved, ...}}, or {now, {}, the first score or ''} where there is nothing.
migrate_all(KEYS[1], KEYS[2], KEYS[3], KEYS[4], ARGV[3])
redis.call('ZCARD', KEYS[2])
redis.call('LLEN', KEYS[3])
local jobs = redis.call('LPOP', KEYS[1], ARGV[4])
if not jobs or #jobs == 0 then
  local due = redis.call('ZRANGE', KEYS[4], 0, 0, 'WITHSCORES')[2]
  if ARGV[2] ~= '' then
    local expires = redis.call('ZRANGE', KEYS[2], 0, 0, 'WITHSCORES')[2]
    if expires and (not due or tonumber(expires) < tonumber(due)) then
      due = expires
    end
  end
  return {now, {}, due or ''}
end
local reserved, members = {}, {}
for i, job in ipairs(jobs) do
  local member = job
  local decoded, envelope = pcall(cjson.decode, job)
  if decoded and type(envelope) == 'table' and type(envelope['attempts']) == 'number' then
    envelope['attempts'] = envelope['attempts'] + 1
    local encoded, text = pcall(cjson.encode, envelope)
    if encoded then
      member = text
    end
  end
  reserved[i] = member
  members[2 * i - 1] = deadline
  members[2 * i] = member
end
redis.call('ZADD', KEYS[2], unpack(members))
redis.call('LPOP', KEYS[3], #jobs)
return {now, jobs, reserved}
