#!lua flags=no-writes
-- count_aside.lua: count what is set aside, by target.
--
-- ARGV[4]  most to look at
-- ARGV[5]  cursor: an id, and ARGV[6] its score, '' for the first page
-- Returns  {now, tags, how many of each, cursor id, cursor score}; a score '' after the last page
-- @include prelude batch flight page

local count = limited(ARGV[4])
local ids, scores = retry_page(ARGV[5], ARGV[6], count)
local found, tags, counts = {}, {}, {}

for _, flight in ipairs(hmget(FLIGHT, ids)) do
  local tag = tag_of(flight)
  if tag then found[tag] = (found[tag] or 0) + 1 end
end
for tag, times in pairs(found) do
  tags[#tags + 1], counts[#counts + 1] = tag, times
end
local is_last = #ids < count or count == 0
return {NOW, tags, counts, ids[#ids] or '', is_last and '' or scores[#scores]}
