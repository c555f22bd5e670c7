#!lua flags=allow-oom
-- open.lua: write the route's life to a shard that has none; later openings write nothing.
--
-- Generations do not begin at 0: files of the cold tier may have rows of an earlier life, and what is noted
-- in this one is to bind them.
-- ARGV[3]  the life to open, 'EPOCH:SHARDS' (shared/life.lua)
-- ARGV[4]  the life to replace, '' for none: only what the registry no longer knows
-- Returns  {now, life}: the life that the shard had before, '' for none
-- @include prelude master clock_floor

local found = redis.call('HMGET', META, 'epoch', 'shards')
local before = found[1] and found[1] .. ':' .. (found[2] or '') or ''
if before ~= '' and (before == ARGV[3] or before ~= ARGV[4]) then return {NOW, before} end

local epoch, shards = string.match(ARGV[3], '^(.*):(.*)$')
redis.call('HSET', META, 'epoch', epoch, 'shards', shards)
redis.call('HSETNX', META, 'master', MASTER)
local first = clock_floor(0)
if redis.call('HSETNX', META, 'generation', first) == 1 then
  redis.call('HSET', META, 'generation_skipped', first)
end
return {NOW, before}
