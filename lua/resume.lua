#!lua flags=allow-oom
-- resume.lua: make ready the envelopes that were set aside for a target; it answers again.
--
-- Transition  retry, tagged -> ready; a retry whose lease ran out twice -> suspect
-- ARGV[4]  tag of the target, '' for any
-- ARGV[5]  most to look at
-- ARGV[6]  cursor: an id, and ARGV[7] its score, '' for the first page
-- ARGV[8]  capacity of ready, as in promote.lua
-- Returns  {poll, resumed, cursor id, cursor score}; a score '' after the last page
-- @include prelude master life renewed batch record flight page poll

local tag, count, after, after_score = ARGV[4], limited(ARGV[5]), ARGV[6], ARGV[7]
local room = tonumber(ARGV[8]) - redis.call('ZCARD', READY)
local ids, scores = retry_page(after, after_score, count)
local flights = hmget(FLIGHT, ids)
local ready, suspect, leaving, is_cut = {}, {}, {}, false

for i, id in ipairs(ids) do
  local found = tag_of(flights[i])
  local is_wanted = found and (tag == '' or tag == found)
  if is_wanted and #leaving >= room then
    is_cut = true
    break
  end
  if is_wanted then
    local into = is_suspect(flights[i]) and suspect or ready
    into[#into + 1], into[#into + 2] = number_at(flights[i], 13, 18), id
    leaving[#leaving + 1] = id
  else
    after, after_score = id, scores[i]
  end
end

zadd(READY, ready)
zadd(SUSPECT, suspect)
zrem(RETRY, leaving)
local is_last = #ids < count and not is_cut
if not is_last and after_score == '' then after_score = '-1' end
return {poll(), #leaving, after, is_last and '' or after_score}
