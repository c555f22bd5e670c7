#!lua flags=allow-oom
-- forget.lua: drop expired answers, remembered ids and tombstones.
--
-- ARGV[4]  most to drop
-- Returns  {poll, dropped}
-- @include prelude master life renewed batch poll

local names = redis.call('ZRANGE', FORGET, '-inf', NOW, 'BYSCORE', 'LIMIT', 0, limited(ARGV[4]))
hdel(MEMORY, names)
zrem(FORGET, names)
return {poll(), #names}
