#!lua flags=allow-oom
-- probe.lua: lease the first live envelope that is set aside for a held target, to try the target with.
--
-- Transition  retry, tagged -> unack; expired ones on the way -> dead
-- ARGV[4]  tag of the target
-- ARGV[5]  most to look at
-- ARGV[6]  cursor: an id, and ARGV[7] its score, '' for the first page
-- ARGV[8]  lease, ms
-- ARGV[9]  nonce, 8 random bytes
-- ARGV[10]  score in dead of expired ones: '' means now; +inf without a dead-letter target
-- Returns  {poll, token, ids, records, flights, expired, cursor id, cursor score}; a score '' after
--          the last page or a lease
-- Never repeated after a lost reply: the lease expires and costs one expiry
-- @include prelude master life renewed batch record flight journal page poll lease

local tag, count = ARGV[4], limited(ARGV[5])
local dead_score = ARGV[10] == '' and NOW or ARGV[10]
local ids, scores = retry_page(ARGV[6], ARGV[7], count)
local flights = hmget(FLIGHT, ids)
local leases, leaving, after, after_score = nil, {}, ARGV[6], ARGV[7]
local is_cut = false

for i, id in ipairs(ids) do
  if tag_of(flights[i]) == tag then
    leases = leases or new_leases(new_token(ARGV[9]), NOW + tonumber(ARGV[8]), dead_score)
    take(leases, id, read_one(id), flights[i], is_suspect(flights[i]))
    leaving[#leaving + 1] = id
    is_cut = has_read_enough()
    if #leases.ids > 0 or is_cut then break end
  else
    after, after_score = id, scores[i]
  end
end

if not leases then
  local is_last = #ids < count
  return {poll(), '', {}, {}, {}, 0, after, is_last and '' or after_score}
end
write_leases(leases)
zrem(RETRY, leaving)
local is_over = #leases.ids > 0 or #ids < count and not is_cut
local reply = leases_reply(leases)
reply[7], reply[8] = after, is_over and '' or (after_score == '' and '-1' or after_score)
return reply
