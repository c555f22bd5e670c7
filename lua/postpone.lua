#!lua flags=allow-oom
-- postpone.lua: end a shunt's lease whose dead letter was not confirmed.
--
-- Transition  dead, leased -> dead: due again later, or kept for good if its target rejects it
-- ARGV[4]  token
-- ARGV[5]  the target of the dead letters in words: a rejection keeps nothing once there is another
-- ARGV[6]  number of envelopes, then for each: id, delay until the next shunt, ms (-1: none), 1 if it
--          was tried, error text of the dead letter
-- Returns  {poll, stale ids}: ids whose lease was lost; their envelopes are unchanged
-- @include prelude master life renewed batch record flight journal memory settle dead poll

local token, target, count = ARGV[4], ARGV[5], tonumber(ARGV[6])
if count > MAX_BATCH then return redis.error_reply('LIMIT at most 1000 envelopes a call') end
local FIRST, WIDTH = 7, 4
local OTHER_TARGET_MS = 10000  -- soon, though not at once: workers of both targets may be there
local ids, packed, scores = first_fields(FIRST, WIDTH, count), {}, {}

local function kept_score()
  if (redis.call('HGET', META, 'dead_letter') or target) ~= target then return NOW_UP + OTHER_TARGET_MS end
  return rejected_score()
end

local stale = settle(ids, hmget(FLIGHT, ids), token, BY_SHUNT, function(id, flight, i)
  local at = FIRST + (i - 1) * WIDTH
  local delay, tried, message, f = tonumber(ARGV[at + 1]), ARGV[at + 2], ARGV[at + 3], open_flight(flight)
  if tried == '1' then f.letters, f.letter_error = f.letters + 1, message end
  clear_lease(f)
  packed[#packed + 1], packed[#packed + 2] = id, close_flight(f)
  scores[#scores + 1], scores[#scores + 2] = delay < 0 and kept_score() or NOW_UP + delay, id
end)

hset(FLIGHT, packed)
zadd(DEAD, scores)
return {poll(), stale}
