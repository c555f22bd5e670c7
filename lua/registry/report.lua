#!lua flags=allow-oom
-- report.lua: replace a worker's record, and forget the workers that have said nothing for long.
--
-- It may exceed the store's limit: records are few, small and expire, and an operator who finds the
-- store full asks who runs.
--
-- KEYS     {namespace}:workers, {namespace}:worker:ID
-- ARGV[1]  id of the worker
-- ARGV[2]  its record
-- ARGV[3]  now, ms
-- ARGV[4]  how long the record is kept, ms
redis.call('SET', KEYS[2], ARGV[2], 'PX', ARGV[4])
redis.call('ZADD', KEYS[1], ARGV[3], ARGV[1])
local gone = redis.call('ZRANGE', KEYS[1], '-inf', ARGV[3] - ARGV[4], 'BYSCORE', 'LIMIT', 0, 1000)
if #gone > 0 then redis.call('ZREM', KEYS[1], unpack(gone)) end
