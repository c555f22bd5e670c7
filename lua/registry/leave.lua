#!lua flags=allow-oom
-- leave.lua: begin or end the removal of a route. In between nobody can open it, so that no shard comes
-- back behind the removal. Its end is journalled in a stream of the namespace, since the route's own
-- journals are gone: the newest 1,000, each with `t` ms, `r` the route, `s` its shards, `n` its envelopes,
-- waiting and dead, as the command found them, and `w` the person who gave it.
--
-- KEYS     {namespace}:routes, {namespace}:epochs, {namespace}:purged
-- ARGV[1]  name of the route
-- ARGV[2]  the epoch that it has from now on, '-' while it is removed; '' to forget the route
-- ARGV[3]  at its end: shards; ARGV[4] envelopes; ARGV[5] the person, '' for none
-- Returns  the epoch before, '' for none
local before = redis.call('HGET', KEYS[2], ARGV[1]) or ''
if ARGV[2] ~= '' then
  redis.call('HSET', KEYS[2], ARGV[1], ARGV[2])
else
  local time = redis.call('TIME')
  redis.call('XADD', KEYS[3], 'MAXLEN', 1000, '*', 't', time[1] * 1000 + math.floor(time[2] / 1000),
    'r', ARGV[1], 's', ARGV[3], 'n', ARGV[4], 'w', ARGV[5])
  redis.call('HDEL', KEYS[1], ARGV[1])
  redis.call('HDEL', KEYS[2], ARGV[1])
end
return before
