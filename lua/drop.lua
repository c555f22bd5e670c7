#!lua flags=allow-oom
-- drop.lua: delete dead envelopes for good, at an operator's request.
--
-- Transition  dead -> (gone)
-- ARGV[3]  number of ids, then the ids
-- Returns  {now, answer, answer, ...}: dropped | in_flight (a shunt holds it) | unknown
-- @include prelude batch record flight journal memory find_state

local count = tonumber(ARGV[3])
if count > MAX_BATCH then return redis.error_reply('LIMIT at most 1000 ids a call') end
local reply, items = {NOW}, {}

local function drop(id)
  local score = redis.call('ZSCORE', DEAD, id)
  if not score then return 'unknown' end
  local packed = redis.call('HGET', FLIGHT, id)
  if is_being_shunted(packed, tonumber(score)) then return 'in_flight' end
  items[#items + 1], items[#items + 2] = id, flight_note(packed or fresh_flight(six(NOW)))
  finish(id, redis.call('HGET', ENVELOPES, id), DIED)
  redis.call('ZREM', DEAD, id)
  return 'dropped'
end

for i = 1, count do reply[1 + i] = drop(ARGV[3 + i]) end
journal('dropped', items)
return reply
