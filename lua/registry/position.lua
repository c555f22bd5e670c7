#!lua flags=allow-oom
-- position.lua: note how far an intake has come in a log; a lower offset changes nothing.
--
-- KEYS     {namespace}:intake:NAME
-- ARGV[1]  name of the log
-- ARGV[2]  offset of the last message that was settled
-- Returns  the offset from now on
local found = redis.call('HGET', KEYS[1], ARGV[1])
if found and tonumber(found) >= tonumber(ARGV[2]) then return tonumber(found) end

redis.call('HSET', KEYS[1], ARGV[1], ARGV[2])
return tonumber(ARGV[2])
