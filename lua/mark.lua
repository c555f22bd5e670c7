#!lua flags=allow-oom
-- mark.lua: mark ids in the filter of cold ids, before their rows count.
--
-- ARGV[4]  their lowest generation; '' marks only the filter that a rebuild fills
-- ARGV[5]  the token of the caller's lease of the cold tier
-- ARGV[6]  number of ids, then the ids
-- Returns  {now, ids}
-- @include prelude master life renewed batch record memory filter cold

local count = tonumber(ARGV[6])
if count > MAX_BATCH then return redis.error_reply('LIMIT at most 1000 ids a call') end
if has_lost_cold_lease(ARGV[5]) then return refuse_without_lease() end
local ids = arguments(7, count)
if ARGV[4] == '' then
  mark_filter(COLD_NEXT, 'next', ids, NEXT_WORDS)
else
  mark_cold(ids, tonumber(ARGV[4]))
end
return {NOW, count}
