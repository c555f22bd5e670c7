#!lua flags=allow-oom
-- drop.lua: delete dead envelopes for good, at an operator's request.
--
-- Transition  dead -> (gone)
-- ARGV[4]  number of ids, then the ids
-- Returns  {now, answer, answer, ...}: dropped | in_flight (a shunt holds it) | unknown; the byte
--          limit may leave the last ids to the next call
-- @include prelude master life renewed batch record flight journal memory find_state

local count = tonumber(ARGV[4])
if count > MAX_BATCH then return redis.error_reply('LIMIT at most 1000 ids a call') end
local ids = arguments(5, count)
local records = fetch(ids, MAX_BYTES)
local reply, items = {NOW}, {}

local function drop(id, record)
  local score = redis.call('ZSCORE', DEAD, id)
  if not score then return 'unknown' end
  local packed = redis.call('HGET', FLIGHT, id)
  if is_being_shunted(packed, tonumber(score)) then return 'in_flight' end
  items[#items + 1], items[#items + 2] = id, flight_note(packed or fresh_flight(six(NOW)))
  finish(id, record, DIED)
  redis.call('ZREM', DEAD, id)
  return 'dropped'
end

for i, id in ipairs(ids) do reply[1 + i] = drop(id, records[i]) end
journal('dropped', items)
return reply
