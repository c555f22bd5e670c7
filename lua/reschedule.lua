#!lua flags=allow-oom
-- reschedule.lua: change the due instant of an envelope whose delivery cannot have started.
--
-- Transition  pending | ready | retry -> pending
-- ARGV[4]  id
-- ARGV[5]  due
-- ARGV[6]  longest allowed delay, ms
-- ARGV[7]  call id, so that a repeated call returns the same answer; ARGV[8] its lifetime, ms
-- ARGV[9]  when a tombstone is looked at again, ms, on a route with a cold tier; else 0
-- Returns  {now, answer, due ms}: rescheduled | in_flight | dead | unknown | recorded | too_far |
--          expires_before_due; only the first and recorded change anything
-- @include prelude master life renewed batch record flight journal memory filter cold find_state

-- Return the instant of a producer's argument: '+15000' after now, or ms since the epoch (past: due now).
local function resolve(given)
  if string.byte(given) == 43 then return NOW_UP + tonumber(string.sub(given, 2)) end
  return math.max(tonumber(given), 0)
end

local id, due, max_delay = ARGV[4], math.max(resolve(ARGV[5]), NOW), tonumber(ARGV[6])
local call, keep_ms, tombstone_ms = 'c' .. ARGV[7], tonumber(ARGV[8]), tonumber(ARGV[9])
local before = recall(call)
if before then return {NOW, string.sub(before, 7), number_at(before, 1, 6)} end
if due - NOW_UP > max_delay then return {NOW, 'too_far', due} end

local function answered(answer)
  memorize(call, six(due) .. answer, keep_ms)
  return {NOW, answer, due}
end

local state, key = find_state(id)
if not state and may_be_cold(id, tombstone_ms ~= 0) then
  local before, generation = tombstone_of(id) or {cancelled = 0, ended = 0}, next_generation(0)
  if before.cancelled > 0 and before.cancelled == generation then  -- nothing was accepted since
    return {NOW, 'unknown', due}
  end
  before.left, before.due = generation, due
  leave_tombstone(id, before, tombstone_ms)
  return answered('recorded')
end
local packed = redis.call('HGET', FLIGHT, id)
if not state then return {NOW, 'unknown', due} end
if state == 'dead' then return {NOW, 'dead', due} end
if state == 'unack' or is_unsure(packed) then return {NOW, 'in_flight', due} end

local record = redis.call('HGET', ENVELOPES, id)
if not record then return {NOW, 'unknown', due} end
if not is_known(record) then return redis.error_reply('LAYOUT a newer duebridge wrote ' .. id) end
local expires = string.sub(record, 8, 13)
if expires ~= NEVER and number_at(expires, 1, 6) <= due then
  return {NOW, 'expires_before_due', due}
end

wake_before(due)
end_cold_copies({id}, next_generation(0), note_ms(tombstone_ms), tombstone_ms > 0)
redis.call('HSET', ENVELOPES, id, moved_record(record, due, expires, next_generation(1)))
if packed then
  local f = open_flight(packed)
  f.due, f.held_since, f.tag = due, 0, NO_TAG
  redis.call('HSET', FLIGHT, id, close_flight(f))
end
redis.call('ZADD', PENDING, due, id)
if key ~= PENDING then redis.call('ZREM', key, id) end
journal('rescheduled', {id, six(due)})
return answered('rescheduled')
