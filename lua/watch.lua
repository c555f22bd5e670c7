#!lua flags=allow-oom
-- watch.lua: take, keep or give up the shard's gauge lease: the one worker that has it exports the gauges.
--
-- ARGV[4]  the worker
-- ARGV[5]  ms that it has the lease from now on; 0 gives it up
-- Returns  {poll, ms until the lease of whoever has it ends, 1 if that is this worker}
-- @include prelude master life renewed poll

local worker, keep_ms = ARGV[4], tonumber(ARGV[5])
local ends, by = string.match(redis.call('HGET', META, 'watch') or '', '^(%d+) (.+)$')
local left_ms = math.max(0, tonumber(ends or 0) - NOW)

if left_ms > 0 and by ~= worker then return {poll(), left_ms, 0} end

if keep_ms > 0 then
  redis.call('HSET', META, 'watch', string.format('%.0f %s', NOW + keep_ms, worker))
elseif by == worker then
  redis.call('HDEL', META, 'watch')
end
return {poll(), keep_ms, keep_ms > 0 and 1 or 0}
