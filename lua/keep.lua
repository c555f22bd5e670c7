#!lua
-- keep.lua: take in what an intake refused and its dead-letter target rejected, as dead envelopes.
--
-- Transition  (unknown) -> dead; a shunt sends it to the route's dead-letter target. Cold copies are not
--          asked for: the ids end in a hash of the message (bridge/duebridge/intake/kept.py), so that no
--          accepted message has them, and what is replayed never goes cold
-- ARGV[4]  score in dead: '' means now; +inf if the route has no dead-letter target
-- ARGV[5]  number of envelopes, then for each: id, hash, blob, reason
--          (bridge/duebridge/ports/publisher.py), error text
-- Returns  {now, kept}; an id that is there, as after a lost reply, is left as it is
-- @include prelude master life renewed batch record flight journal memory find_state

local dead_score, count = ARGV[4] == '' and NOW or ARGV[4], tonumber(ARGV[5])
if count > MAX_BATCH then return redis.error_reply('LIMIT at most 1000 envelopes a call') end
local FIRST, WIDTH = 6, 5
local records, flights, scores, seen, largest = {}, {}, {}, {}, 0
local accepted, dead, failures = {}, {}, new_failures()

local function keep(id, hash, blob, reason, message)
  local record = new_record(NOW, 0, 0, next_generation(1), hash .. blob)
  local f = open_flight(fresh_flight(six(NOW)))
  note_failure(f, '0', '0', message)
  f.reason = tonumber(reason)
  local n = #records
  records[n + 1], records[n + 2] = id, record
  flights[n + 1], flights[n + 2] = id, close_flight(f)
  scores[n + 1], scores[n + 2] = dead_score, id
  accepted[n + 1], accepted[n + 2] = id, six(NOW)
  dead[n + 1], dead[n + 2] = id, flight_note(flights[n + 2]) .. string.char(f.reason)
  add_failure(failures, 0, message, '0')
  largest, seen[id] = math.max(largest, #record), true
end

for i = 1, count do
  local at = FIRST + (i - 1) * WIDTH
  local id = ARGV[at]
  if not seen[id] and not has_state(id, redis.call('HEXISTS', ENVELOPES, id) == 1) then
    keep(id, ARGV[at + 1], ARGV[at + 2], ARGV[at + 3], ARGV[at + 4])
  end
end
if #records == 0 then return {NOW, 0} end

note_largest(largest)
hset(ENVELOPES, records)
hset(FLIGHT, flights)
zadd(DEAD, scores)
journal('accepted', accepted)
journal('dead', dead, failures)
wake_before(NOW)
return {NOW, #dead / 2}
