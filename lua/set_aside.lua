#!lua flags=allow-oom
-- set_aside.lua: put envelopes back because their target is held or has no room; counts nothing.
--
-- Transition  unack -> retry, tagged with the target (or gone, if a cancel is pending); resume brings
--             them back early, promote when their delay is over
-- ARGV[4]  token
-- ARGV[5]  number of envelopes, then for each: id, delay ms, tag of the target (8 letters), clock of
--          `hold` (1: starts, '': unchanged), 1 if it may have been published (unsure), error text
--          ('' if it was not published: then nothing is journalled)
-- Returns  {poll, stale ids, marked ids}: of lost leases, unchanged; and of those that a cancel ends
-- @include prelude master life renewed batch record flight journal memory settle poll

local token, count = ARGV[4], tonumber(ARGV[5])
if count > MAX_BATCH then return redis.error_reply('LIMIT at most 1000 envelopes a call') end
local FIRST, WIDTH = 6, 6
local scores = {}

local settled = settle_claim(first_fields(FIRST, WIDTH, count), token, function(id, f, i)
  local at = FIRST + (i - 1) * WIDTH
  local delay, tag, hold, unsure, message = ARGV[at + 1], ARGV[at + 2], ARGV[at + 3], ARGV[at + 4], ARGV[at + 5]
  note_failure(f, '0', unsure, message)
  note_hold(f, hold)
  f.tag = tag
  local next_try = NOW_UP + tonumber(delay)
  scores[#scores + 1], scores[#scores + 2] = next_try, id
  if message ~= '' then return '', next_try, '0', message end
end)

hset(FLIGHT, settled.flights)
zadd(RETRY, scores)
journal('retried', settled.items, settled.failures)
leave_unack(settled)
return {poll(), settled.stale, settled.marked}
