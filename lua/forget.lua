#!lua flags=allow-oom
-- forget.lua: drop expired answers, remembered ids and tombstones.
--
-- ARGV[3]  most to drop
-- Returns  {poll, dropped}
-- @include prelude batch poll

local names = redis.call('ZRANGE', FORGET, '-inf', NOW, 'BYSCORE', 'LIMIT', 0, limited(ARGV[3]))
hdel(MEMORY, names)
zrem(FORGET, names)
return {poll(), #names}
