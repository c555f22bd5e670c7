#!lua flags=allow-oom
-- release.lua: give envelopes back at once that never reached a broker's client; no failure counts.
--
-- Transition  unack -> ready (or gone, where a cancel waited for it)
-- ARGV[3]  token
-- ARGV[4]  number of ids, then the ids
-- Returns  {poll, stale ids}: the token is not theirs any more, nothing of them was changed
-- @include keys clock bytes batch record flight journal memory finish poll

local count = tonumber(ARGV[4])
if count > MAX_BATCH then return redis.error_reply('LIMIT at most 1000 ids a call') end
local ids = arguments(5, count)
local flights = hmget(FLIGHT, ids)
local gone, stale, cancelled, packed, ready, suspect = {}, {}, {}, {}, {}, {}

for i, id in ipairs(ids) do
  if is_held_by(flights[i], ARGV[3], BY_CLAIM) then
    local f = open_flight(flights[i])
    gone[#gone + 1] = id
    if f.cancel == 1 then
      finish_cancelled(id, f, cancelled)
    else
      local scores = f.single == 1 and suspect or ready
      scores[#scores + 1], scores[#scores + 2] = f.due, id
      let_go(f)
      packed[#packed + 1], packed[#packed + 2] = id, close_flight(f)
    end
  else
    stale[#stale + 1] = id
  end
end

hset(FLIGHT, packed)
zadd(READY, ready)
zadd(SUSPECT, suspect)
journal('cancelled', cancelled)
zrem(UNACK, gone)
if #packed > 0 then redis.call('PUBLISH', WAKE, NOW) end
return {poll(), stale}
