#!lua flags=allow-oom
-- postpone.lua: give up a shunt's lease after its dead letters could not be sent; try again later.
--
-- Transition  dead, leased -> dead
-- ARGV[3]  token
-- ARGV[4]  delay, ms, until the next shunt
-- ARGV[5]  number of ids, then the ids
-- Returns  {poll, stale ids}: the token is not theirs any more, nothing of them was changed
-- @include keys clock bytes batch flight poll

local count = tonumber(ARGV[5])
if count > MAX_BATCH then return redis.error_reply('LIMIT at most 1000 ids a call') end
local ids = arguments(6, count)
local flights = hmget(FLIGHT, ids)
local packed, scores, stale = {}, {}, {}

for i, id in ipairs(ids) do
  if is_held_by(flights[i], ARGV[3], BY_SHUNT) then
    local f = open_flight(flights[i])
    let_go(f)
    packed[#packed + 1], packed[#packed + 2] = id, close_flight(f)
    scores[#scores + 1], scores[#scores + 2] = NOW_UP + tonumber(ARGV[4]), id
  else
    stale[#stale + 1] = id
  end
end

hset(FLIGHT, packed)
zadd(DEAD, scores)
return {poll(), stale}
