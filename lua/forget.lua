#!lua flags=allow-oom
-- forget.lua: drop expired answers and remembered ids, and tombstones that bind no row any more.
--
-- ARGV[4]  most to drop
-- Returns  {poll, dropped}
-- @include prelude master life renewed batch record memory poll

local names = redis.call('ZRANGE', FORGET, '-inf', NOW, 'BYSCORE', 'LIMIT', 0, limited(ARGV[4]))
local dropped = drop_over(names)
return {poll(), dropped}
