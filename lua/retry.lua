#!lua flags=allow-oom
-- retry.lua: schedule another attempt; remove envelopes cancelled meanwhile.
--
-- Transition  unack -> retry (or gone, if a cancel is pending)
-- ARGV[4]  token
-- ARGV[5]  number of envelopes, then for each: id, delay ms, 1 if it counts as a failure, 1 if it
--          may have been published (unsure), clock of `hold` (1: starts, 0: ends, '': unchanged), error
--          text
-- Returns  {poll, stale ids, marked ids}: of lost leases, unchanged; and of those that a cancel ends
-- @include prelude master life renewed batch record flight journal memory settle poll

local token, count = ARGV[4], tonumber(ARGV[5])
if count > MAX_BATCH then return redis.error_reply('LIMIT at most 1000 envelopes a call') end
local FIRST, WIDTH = 6, 6
local scores = {}

local settled = settle_claim(first_fields(FIRST, WIDTH, count), token, function(id, f, i)
  local at = FIRST + (i - 1) * WIDTH
  local delay, counts, unsure, hold, message = ARGV[at + 1], ARGV[at + 2], ARGV[at + 3], ARGV[at + 4], ARGV[at + 5]
  note_failure(f, counts, unsure, message)
  note_hold(f, hold)
  f.retries = f.retries + 1
  local next_try = NOW_UP + tonumber(delay)
  scores[#scores + 1], scores[#scores + 2] = next_try, id
  return '', next_try, counts, message
end)

hset(FLIGHT, settled.flights)
zadd(RETRY, scores)
journal('retried', settled.items, settled.failures)
leave_unack(settled)
return {poll(), settled.stale, settled.marked}
