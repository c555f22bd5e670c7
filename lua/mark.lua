#!lua flags=allow-oom
-- mark.lua: mark ids in the filter of cold ids, before their rows count.
--
-- ARGV[4]  their lowest generation; '' marks only the filter that a rebuild fills
-- ARGV[5]  the token of the caller's lease of the cold tier
-- ARGV[6]  number of ids, then the ids
-- Returns  {now, void ids}: the row of an id that lives here ends before it counts, since the store
--          judges what comes beside it. The row of one that ended since the row had its generation, or
--          is remembered, does not count either; but a later row of that id may be cold by now, and does
--          not end
-- @include prelude master life renewed batch record memory filter cold

local count = tonumber(ARGV[6])
if count > MAX_BATCH then return redis.error_reply('LIMIT at most 1000 ids a call') end
if has_lost_cold_lease(ARGV[5]) then return refuse_without_lease() end
local ids = arguments(7, count)
if ARGV[4] == '' then
  mark_filter(COLD_NEXT, 'next', ids, NEXT_WORDS)
  return {NOW, {}}
end

local lowest, generation, void = tonumber(ARGV[4]), next_generation(0), {}
local remembered = read_memory('r', ids)
read_tombstones(ids)
for i, id in ipairs(ids) do
  local tombstone, lives = tombstone_of(id), redis.call('HEXISTS', ENVELOPES, id) == 1
  local has_ended = tombstone and tombstone.ended >= lowest
  if lives or has_ended or unexpired(remembered[i]) then void[#void + 1] = id end
  if lives then end_copies(id, generation, 0) end
end
mark_cold(ids, lowest)
return {NOW, void}
