#!lua flags=allow-oom
-- postpone.lua: release a shunt's lease after a failed dead letter; retry later.
--
-- Transition  dead, leased -> dead
-- ARGV[3]  token
-- ARGV[4]  delay, ms, until the next shunt
-- ARGV[5]  number of ids, then the ids
-- Returns  {poll, stale ids}: ids whose lease was lost; their envelopes are unchanged
-- @include prelude batch record flight journal memory settle poll

local token, next_shunt, count = ARGV[3], NOW_UP + tonumber(ARGV[4]), tonumber(ARGV[5])
if count > MAX_BATCH then return redis.error_reply('LIMIT at most 1000 ids a call') end
local ids = arguments(6, count)
local packed, scores = {}, {}

local stale = settle(ids, hmget(FLIGHT, ids), token, BY_SHUNT, function(id, flight)
  local f = open_flight(flight)
  clear_lease(f)
  packed[#packed + 1], packed[#packed + 2] = id, close_flight(f)
  scores[#scores + 1], scores[#scores + 2] = next_shunt, id
end)

hset(FLIGHT, packed)
zadd(DEAD, scores)
return {poll(), stale}
