#!lua flags=allow-oom
-- reclaim.lua: return envelopes with expired leases to ready.
--
-- Transition  unack -> ready; after two expiries -> suspect; poison -> dead (or gone, if a
--             cancel is pending)
-- ARGV[4]  most to take back
-- ARGV[5]  1: every lease counts as an expiry; 0: after a store outage, none does
-- ARGV[6]  poison: bury an envelope after this many expiries while claimed alone
-- ARGV[7]  score in dead: '' means now; +inf if the route has no dead-letter target
-- Returns  {poll, reclaimed, buried as poison}; the byte limit may leave some to the next call
-- @include prelude master life renewed batch record flight journal memory poll

local ids = redis.call('ZRANGE', UNACK, '-inf', NOW, 'BYSCORE', 'LIMIT', 0, limited(ARGV[4]))
local flights = hmget(FLIGHT, ids)
local counts, poison, dead_score = ARGV[5] == '1', tonumber(ARGV[6]), ARGV[7] == '' and NOW or ARGV[7]
local poisoned, cancelled, packed, ready, suspect, dead, leaving = {}, {}, {}, {}, {}, {}, {}

-- What ends here or may be poison has its record read: past the bytes of a call it is left to the next.
local function must_wait(f)
  return has_read_enough() and (f.cancel == 1 or f.singles + f.single >= poison)
end

local function is_poison(id, f)
  return f.singles >= poison and not is_newer(read_one(id))
end

local function put_back(id, f)
  if counts then
    f.expiries, f.singles = f.expiries + 1, f.singles + f.single
  end
  f.unsure = 1
  clear_lease(f)
  local scores, score = f.expiries >= SUSPECT_FROM and suspect or ready, f.due
  if is_poison(id, f) then
    f.reason, f.held_since, scores, score = POISON, 0, dead, dead_score
  end
  scores[#scores + 1], scores[#scores + 2] = score, id
  packed[#packed + 1], packed[#packed + 2] = id, close_flight(f)
  if f.reason == POISON then
    poisoned[#poisoned + 1], poisoned[#poisoned + 2] = id, flight_note(packed[#packed]) .. '\7'
  end
end

for i, id in ipairs(ids) do
  local f = open_flight(flights[i] or fresh_flight(six(NOW)))
  if not must_wait(f) then
    leaving[#leaving + 1] = id
    if f.cancel == 1 then finish_cancelled(id, f, cancelled) else put_back(id, f) end
  end
end

hset(FLIGHT, packed)
zadd(READY, ready)
zadd(SUSPECT, suspect)
zadd(DEAD, dead)
journal('dead', poisoned)
journal('cancelled', cancelled)
zrem(UNACK, leaving)
return {poll(), #leaving, #poisoned / 2}
