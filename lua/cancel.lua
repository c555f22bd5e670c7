#!lua flags=allow-oom
-- cancel.lua: cancel an envelope; the answer tells whether delivery is certainly prevented.
--
-- Transition  pending | ready | retry -> (gone); in unack only a mark, applied when the lease ends
-- ARGV[4]  id
-- ARGV[5]  call id, so that a repeated call returns the same answer; ARGV[6] its lifetime, ms
-- ARGV[7]  when a tombstone is looked at again, ms, on a route with a cold tier; else 0
-- ARGV[8]  its place in the log that it came from (shared/places.lua), '' for none
-- Returns  {now, answer}: cancelled | in_flight (a delivery was started and did not definitely
--          fail; the envelope is removed when its lease ends) | dead | unknown | recorded; of an id with
--          something beside it, in_flight if either is
-- @include prelude master life renewed batch record flight journal memory filter cold find_state places

local id, call, keep_ms, tombstone_ms = ARGV[4], 'c' .. ARGV[5], tonumber(ARGV[6]), tonumber(ARGV[7])
local before = recall(call)
if before then return {NOW, before} end

local places, marks = read_places(ARGV[8])
local place = places[1]
if place and is_passed(place) then return {NOW, 'unknown'} end

local function answered(answer)
  if place then take_in(place, id, true, true) end
  write_marks(marks)
  memorize(call, answer, keep_ms)
  return {NOW, answer}
end

-- A repeated call finds the same, unless the place was taken in by then.
local function unchanged(answer) return place and answered(answer) or {NOW, answer} end

-- Cancel what lives under an id, in a state other than dead. No cold copy of it may come in again. The id
-- itself ends now, however much is beside it: a producer may schedule it again.
local function cancel_living(id, state, key)
  end_cold_copies({id}, next_generation(0), tombstone_ms, tombstone_ms > 0)
  local packed = redis.call('HGET', FLIGHT, id)
  if state == 'unack' then
    local f = open_flight(packed)
    f.cancel = 1
    redis.call('HSET', FLIGHT, id, close_flight(f))
    return 'in_flight'
  end
  if id ~= ARGV[4] and has_read_enough() then
    finish_later(id, key)
  else
    local record = read_one(id)
    local note = packed and flight_note(packed) or due_or(record, six(NOW)) .. '\0\0\0\0'
    journal('cancelled', {id, note})
    finish(id, record, CANCELLED)
    redis.call('ZREM', key, id)
  end
  return is_unsure(packed) and 'in_flight' or 'cancelled'
end

-- What is stored beside the id (shared/beside.lua) is cancelled with it.
local besides, answer = recall('b' .. id), nil
for _, beside in ipairs(besides and cmsgpack.unpack(besides) or {}) do
  local state, key = find_state(beside)
  local one = state and state ~= 'dead' and cancel_living(beside, state, key)
  if one and answer ~= 'in_flight' then answer = one end
  if not state and may_be_cold(beside, tombstone_ms > 0) then cancel_cold(beside, tombstone_ms) end
end

local state, key = find_state(id)
if state and state ~= 'dead' then
  local own = cancel_living(id, state, key)
  return answered(answer == 'in_flight' and answer or own)
end
if not state and may_be_cold(id, tombstone_ms > 0) then
  cancel_cold(id, tombstone_ms)
  answer = answer or 'recorded'
end
if answer then return answered(answer) end
return unchanged(state or 'unknown')
