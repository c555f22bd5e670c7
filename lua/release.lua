#!lua flags=allow-oom
-- release.lua: return unpublished envelopes to ready immediately; counts no failure.
--
-- Transition  unack -> ready (or gone, if a cancel is pending)
-- ARGV[4]  token
-- ARGV[5]  number of ids, then the ids
-- Returns  {poll, stale ids, marked ids}: of lost leases, unchanged; and of those that a cancel ends
-- @include prelude master life renewed batch record flight journal memory settle poll

local token, count = ARGV[4], tonumber(ARGV[5])
if count > MAX_BATCH then return redis.error_reply('LIMIT at most 1000 ids a call') end
local ready, suspect = {}, {}

local settled = settle_claim(arguments(6, count), token, function(id, f)
  local scores = f.single == 1 and suspect or ready
  scores[#scores + 1], scores[#scores + 2] = f.due, id
end)

hset(FLIGHT, settled.flights)
zadd(READY, ready)
zadd(SUSPECT, suspect)
leave_unack(settled)
if #settled.flights > 0 then redis.call('PUBLISH', WAKE, NOW) end
return {poll(), settled.stale, settled.marked}
