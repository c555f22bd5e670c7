#!lua flags=allow-oom
-- bury.lua: end the attempts of envelopes; a shunt takes each to the dead-letter target.
--
-- Transition  unack -> dead (or gone, where a cancel waited for it)
-- ARGV[3]  token
-- ARGV[4]  score in dead: now where '', or +inf where the route has no dead-letter target
-- ARGV[5]  number of envelopes, then for each: id, reason (bridge/duebridge/ports/publisher.py), 1 if it counts as a
--          failure, 1 if it may have been published (unsure), error text
-- Returns  {poll, stale ids}: the token is not theirs any more, nothing of them was changed
-- @include keys clock bytes batch record flight journal memory finish poll

local count = tonumber(ARGV[5])
if count > MAX_BATCH then return redis.error_reply('LIMIT at most 1000 envelopes a call') end
local ids, stale = {}, {}
for i = 1, count do ids[i] = ARGV[1 + i * 5] end
local flights = hmget(FLIGHT, ids)
local dead_score = ARGV[4] == '' and NOW or ARGV[4]
local gone, buried, cancelled, packed, scores = {}, {}, {}, {}, {}

local function put_down(id, f, at)
  note_failure(f, ARGV[at + 2], ARGV[at + 3], ARGV[at + 4])
  f.reason = tonumber(ARGV[at + 1])
  let_go(f)
  packed[#packed + 1], packed[#packed + 2] = id, close_flight(f)
  scores[#scores + 1], scores[#scores + 2] = dead_score, id
  buried[#buried + 1], buried[#buried + 2] = id, flight_note(packed[#packed]) .. string.char(f.reason)
end

for i, id in ipairs(ids) do
  if is_held_by(flights[i], ARGV[3], BY_CLAIM) then
    local f = open_flight(flights[i])
    gone[#gone + 1] = id
    if f.cancel == 1 then finish_cancelled(id, f, cancelled) else put_down(id, f, 1 + i * 5) end
  else
    stale[#stale + 1] = id
  end
end

hset(FLIGHT, packed)
zadd(DEAD, scores)
journal('dead', buried)
journal('cancelled', cancelled)
zrem(UNACK, gone)
return {poll(), stale}
