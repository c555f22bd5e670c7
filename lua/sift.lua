#!lua flags=allow-oom
-- sift.lua: rebuild the filter of cold ids: begin another, or put it in the place of the one in use.
--
-- ARGV[4]  the token of the caller's lease of the cold tier
-- ARGV[5]  size of the new filter, words of 32 bits; '' ends the rebuild
-- ARGV[6]  the lowest generation in the files, or a generation taken before they were read
-- Returns  {now, ids marked in the new filter}
-- @include prelude master life renewed batch record memory filter cold

if has_lost_cold_lease(ARGV[4]) then return refuse_without_lease() end
if ARGV[5] ~= '' then
  redis.call('UNLINK', COLD_NEXT)
  redis.call('BITFIELD', COLD_NEXT, 'SET', 'i32', '#' .. tonumber(ARGV[5]) - 1, 0)
  redis.call('HSET', META, 'next_words', ARGV[5], 'next_marked', 0, 'next_floor', ARGV[6])
  return {NOW, 0}
end
if NEXT_WORDS == 0 then return redis.error_reply('SIFT no rebuild was begun, or another ended it') end
local marked = redis.call('HGET', META, 'next_marked')
redis.call('HSET', META, 'cold_side', cold[7] == 'b' and 'a' or 'b', 'cold_words', NEXT_WORDS,
  'cold_marked', marked, 'cold_floor', math.min(NEXT_FLOOR, tonumber(ARGV[6])))
redis.call('UNLINK', COLD)
redis.call('HDEL', META, 'next_words', 'next_marked', 'next_floor')
return {NOW, tonumber(marked)}
