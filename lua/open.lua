#!lua flags=allow-oom
-- open.lua: write the route's life to a shard that has none; later openings write nothing.
--
-- Generations do not begin at 0: files of the cold tier may have rows of an earlier life, and what is noted
-- in this one is to bind them.
-- Who may run some of the commands that write and not others is refused here, at the first use: a script
-- that is denied a command keeps what it wrote before.
-- ARGV[3]  the life to open, 'EPOCH:SHARDS' (shared/life.lua)
-- ARGV[4]  the life to replace, '' for none: only what the registry no longer knows
-- Returns  {now, life}: the life that the shard had before, '' for none
-- @include prelude master clock_floor

-- The writes of every route's scripts. A cold tier's need more, which a user of duebridge 0.2.0 lacks.
local WRITES = {HSET = META, HSETNX = META, HDEL = META, HINCRBY = META, ZADD = META, ZREM = META,
  ZREMRANGEBYRANK = META, XADD = META, XDEL = META, ['PUBLISH'] = WAKE}
local denied, is_writer = {}, false
for command, key in pairs(WRITES) do
  if redis.acl_check_cmd(command, key, '') then is_writer = true else denied[#denied + 1] = command end
end
if is_writer and #denied > 0 then
  table.sort(denied)
  return redis.error_reply('NOPERM the user may not run ' .. table.concat(denied, ', '))
end

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
