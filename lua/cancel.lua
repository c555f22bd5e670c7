#!lua flags=allow-oom
-- cancel.lua: prevent the delivery of an envelope, and tell whether that is certain.
--
-- Transition  pending | ready | retry -> (gone); in unack a mark, obeyed when no worker holds it
-- ARGV[3]  id
-- ARGV[4]  call id, so that a repeated call answers as it did, and ARGV[5] how long, ms
-- ARGV[6]  on a route with a cold tier: how long a tombstone lives, ms; else 0
-- Returns  {now, answer}: cancelled | in_flight (a delivery was started and is not known to have
--          failed; it is removed as soon as no worker holds it) | dead | unknown | recorded
-- @include prelude record flight journal memory find_state

local id, call, keep_ms, tombstone_ms = ARGV[3], 'c' .. ARGV[4], tonumber(ARGV[5]), tonumber(ARGV[6])
local before = recall(call)
if before then return {NOW, before} end

local function answered(answer)
  memorize(call, answer, keep_ms)
  return {NOW, answer}
end

local state, key = find_state(id)
if state == 'dead' then return {NOW, 'dead'} end
if not state then
  if tombstone_ms == 0 then return {NOW, 'unknown'} end
  local generation = six(next_generation(0))
  memorize('t' .. id, generation .. NEVER .. generation, tombstone_ms)
  return answered('recorded')
end

local packed = redis.call('HGET', FLIGHT, id)
if state == 'unack' then
  local f = open_flight(packed)
  f.cancel = 1
  redis.call('HSET', FLIGHT, id, close_flight(f))
  return answered('in_flight')
end

local record = redis.call('HGET', ENVELOPES, id)
local note = packed and flight_note(packed) or due_or(record, six(NOW)) .. '\0\0\0\0'
journal('cancelled', {id, note})
finish(id, record)
redis.call('ZREM', key, id)
return answered(is_unsure(packed) and 'in_flight' or 'cancelled')
