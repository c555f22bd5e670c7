#!lua flags=allow-oom
-- retry.lua: put envelopes back for a later attempt; one that was cancelled meanwhile is removed.
--
-- Transition  unack -> retry (or gone, where a cancel waited for it)
-- ARGV[3]  token
-- ARGV[4]  1: the target itself failed, so the route is held from now on if it was not already
-- ARGV[5]  number of envelopes, then for each: id, delay ms, 1 if it counts as a failure, 1 if it
--          may have been published (unsure), error text
-- Returns  {poll, stale ids}: the token is not theirs any more, nothing of them was changed
-- @include keys clock bytes batch record flight journal memory finish poll

local count = tonumber(ARGV[5])
if count > MAX_BATCH then return redis.error_reply('LIMIT at most 1000 envelopes a call') end
local ids, stale = {}, {}
for i = 1, count do ids[i] = ARGV[1 + i * 5] end
local flights = hmget(FLIGHT, ids)
local gone, retried, cancelled, packed, scores = {}, {}, {}, {}, {}

local function put_back(id, f, at)
  note_failure(f, ARGV[at + 2], ARGV[at + 3], ARGV[at + 4])
  f.retries = f.retries + 1
  let_go(f)
  packed[#packed + 1], packed[#packed + 2] = id, close_flight(f)
  scores[#scores + 1], scores[#scores + 2] = NOW_UP + tonumber(ARGV[at + 1]), id
  retried[#retried + 1], retried[#retried + 2] = id, flight_note(packed[#packed])
end

for i, id in ipairs(ids) do
  if is_held_by(flights[i], ARGV[3], BY_CLAIM) then
    local f = open_flight(flights[i])
    gone[#gone + 1] = id
    if f.cancel == 1 then finish_cancelled(id, f, cancelled) else put_back(id, f, 1 + i * 5) end
  else
    stale[#stale + 1] = id
  end
end

if ARGV[4] == '1' and #gone > 0 then redis.call('HSETNX', META, 'held_since', NOW) end
hset(FLIGHT, packed)
zadd(RETRY, scores)
journal('retried', retried)
journal('cancelled', cancelled)
zrem(UNACK, gone)
return {poll(), stale}
