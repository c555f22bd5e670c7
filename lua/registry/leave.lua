#!lua flags=allow-oom
-- leave.lua: begin or end the removal of a route. In between nobody can open it, so that no shard comes
-- back behind the removal.
--
-- KEYS     {namespace}:routes, {namespace}:epochs
-- ARGV[1]  name of the route
-- ARGV[2]  the epoch that it has from now on, '-' while it is removed; '' to forget the route
-- Returns  the epoch before, '' for none
local before = redis.call('HGET', KEYS[2], ARGV[1]) or ''
if ARGV[2] ~= '' then
  redis.call('HSET', KEYS[2], ARGV[1], ARGV[2])
else
  redis.call('HDEL', KEYS[1], ARGV[1])
  redis.call('HDEL', KEYS[2], ARGV[1])
end
return before
