#!lua flags=allow-oom
-- bury.lua: move envelopes to dead; a shunt sends them to the dead-letter target.
--
-- Transition  unack -> dead (or gone, if a cancel is pending)
-- ARGV[4]  token
-- ARGV[5]  score in dead: '' means now; +inf if the route has no dead-letter target
-- ARGV[6]  number of envelopes, then for each: id, reason (bridge/duebridge/ports/publisher.py), 1 if
--          it counts as a failure, 1 if it may have been published (unsure), error text
-- Returns  {poll, stale ids, marked ids}: of lost leases, unchanged; and of those that a cancel ends
-- @include prelude master life renewed batch record flight journal memory settle poll

local token, dead_score, count = ARGV[4], ARGV[5] == '' and NOW or ARGV[5], tonumber(ARGV[6])
if count > MAX_BATCH then return redis.error_reply('LIMIT at most 1000 envelopes a call') end
local FIRST, WIDTH = 7, 5
local scores = {}

local settled = settle_claim(first_fields(FIRST, WIDTH, count), token, function(id, f, i)
  local at = FIRST + (i - 1) * WIDTH
  local reason, counts, unsure, message = ARGV[at + 1], ARGV[at + 2], ARGV[at + 3], ARGV[at + 4]
  note_failure(f, counts, unsure, message)
  f.reason, f.held_since = tonumber(reason), 0
  scores[#scores + 1], scores[#scores + 2] = dead_score, id
  return string.char(f.reason), 0, counts, message
end)

hset(FLIGHT, settled.flights)
zadd(DEAD, scores)
journal('dead', settled.items, settled.failures)
leave_unack(settled)
return {poll(), settled.stale, settled.marked}
