#!lua flags=allow-oom
-- enter.lua: register a route, and give it an epoch if it has none (a new one, or an older version's).
--
-- KEYS     {namespace}:routes, {namespace}:epochs
-- ARGV[1]  name of the route
-- ARGV[2]  LAYOUT:SHARDS to register it with, '' to register nothing
-- ARGV[3]  a new random epoch
-- Returns  {LAYOUT:SHARDS, epoch} as registered, '' where it is not; epoch '-' while it is removed
local found, epoch = redis.call('HGET', KEYS[1], ARGV[1]), redis.call('HGET', KEYS[2], ARGV[1])
if not found and ARGV[2] == '' then return {'', ''} end
if found and epoch then return {found, epoch} end

redis.call('HSET', KEYS[2], ARGV[1], ARGV[3])
if not found then redis.call('HSET', KEYS[1], ARGV[1], ARGV[2]) end
return {found or ARGV[2], ARGV[3]}
