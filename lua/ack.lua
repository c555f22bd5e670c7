#!lua flags=allow-oom
-- ack.lua: delete envelopes whose delivery the broker confirmed.
--
-- Transition  unack -> (gone), or dead -> (gone) once the dead letter is confirmed
-- ARGV[4]  unack or dead
-- ARGV[5]  one token for all ids, or one per id, concatenated: claims share a call
-- ARGV[6]  number of ids, then the ids; then for each id to remember: its index, ms, hash (the
--          claim returned them, so that this script reads no record but where a repeat raised the ms since)
-- Returns  {poll, stale ids}: ids whose lease was lost; their envelopes are unchanged
-- @include prelude master life renewed batch record flight journal memory settle poll

local is_shunt, token, count = ARGV[4] == 'dead', ARGV[5], tonumber(ARGV[6])
if count > MAX_BATCH then return redis.error_reply('LIMIT at most 1000 ids a call') end
local ids = arguments(7, count)
local flights = hmget(FLIGHT, ids)
local acked, items, is_acked, raised = {}, {}, {}, {}
local ended = is_shunt and DIED or DELIVERED

local stale = settle(ids, flights, token, is_shunt and BY_SHUNT or BY_CLAIM, function(id, flight, i)
  acked[#acked + 1], is_acked[i] = id, true
  if string.byte(flight, 32) == 2 then raised[#raised + 1] = i end
  items[#items + 1], items[#items + 2] = id, flight_note(flight)
end)
if #acked == 0 then return {poll(), stale} end

for at = 7 + count, #ARGV, 3 do
  local place, remember_ms, hash = tonumber(ARGV[at]), tonumber(ARGV[at + 1]), ARGV[at + 2]
  if is_acked[place] then
    remember_id(ids[place], string.sub(flights[place], 13, 18), hash, ended, remember_ms)
  end
end

-- A repeat came after the claim: the record has the longer time. Large ones beyond what a call may read keep
-- the claim's.
for _, i in ipairs(raised) do
  local record = not has_read_enough() and read_one(ids[i])
  if is_known(record) then
    local due, hash = string.sub(flights[i], 13, 18), string.sub(record, 32, 39)
    remember_id(ids[i], due, hash, ended, number_at(record, 14, 19))
  end
end

journal(is_shunt and 'shunted' or 'delivered', items)
if not is_shunt then redis.call('HDEL', META, 'held_since') end  -- an older worker's hold of the route
hdel(ENVELOPES, acked)
hdel(FLIGHT, acked)
zrem(is_shunt and DEAD or UNACK, acked)
return {poll(), stale}
