#!lua flags=allow-oom
-- ack.lua: forget envelopes whose delivery the broker confirmed.
--
-- Transition  unack -> (gone), or dead -> (gone) once the dead letter is confirmed
-- ARGV[3]  unack or dead
-- ARGV[4]  token; or one for each id, in their order: confirms of several claims share a call
-- ARGV[5]  number of ids, then the ids; then, for each that is to be remembered: its place among
--          the ids, ms, hash (a claim handed them out, so that no record is read again here)
-- Returns  {poll, stale ids}: the token is not theirs any more, nothing of them was changed
-- A confirm ends the hold of a route, whichever worker got it
-- @include keys clock bytes batch record flight journal memory finish poll

local source = ARGV[3] == 'dead' and DEAD or UNACK
local by = source == DEAD and BY_SHUNT or BY_CLAIM
local count = tonumber(ARGV[5])
if count > MAX_BATCH then return redis.error_reply('LIMIT at most 1000 ids a call') end
local ids = arguments(6, count)
local flights = hmget(FLIGHT, ids)
local acked, stale, items = {}, {}, {}

local function is_ours(i)
  local token = ARGV[4]
  if #token == 12 * count then token = string.sub(token, 12 * i - 11, 12 * i) end
  return is_held_by(flights[i], token, by)
end

for i, id in ipairs(ids) do
  if is_ours(i) then
    acked[#acked + 1] = id
    items[#items + 1], items[#items + 2] = id, flight_note(flights[i])
  else
    stale[#stale + 1] = id
  end
end
if #acked == 0 then return {poll(), stale} end

for at = 6 + count, #ARGV, 3 do
  local place = tonumber(ARGV[at])
  if is_ours(place) then
    local due_six = string.sub(flights[place], 13, 18)
    remember_id(ids[place], due_six, ARGV[at + 2], tonumber(ARGV[at + 1]))
  end
end

journal(source == DEAD and 'shunted' or 'delivered', items)
if source == UNACK then redis.call('HDEL', META, 'held_since') end
hdel(ENVELOPES, acked)
hdel(FLIGHT, acked)
zrem(source, acked)
return {poll(), stale}
