#!lua flags=allow-oom
-- vacate.lua: give back the lease of the shard's cold tier.
--
-- ARGV[4]  token
-- Returns  {now, 1 if the caller had it}
-- @include prelude master life renewed batch record memory filter cold

if holder_of_cold() ~= ARGV[4] then return {NOW, 0} end
redis.call('HDEL', META, 'cold_lease')
return {NOW, 1}
