#!lua flags=allow-oom
-- claim.lua: lease ready envelopes to one worker, earliest first; expired ones go to dead.
--
-- Transition  ready -> unack (or dead, reason expired), optionally after pending | retry -> ready:
-- for a trickle, one call instead of two halves the server's work
-- ARGV[3]  ready; or suspect: claimed alone
-- ARGV[4]  most to claim
-- ARGV[5]  most bytes of records to claim, but at least one envelope
-- ARGV[6]  lease, ms
-- ARGV[7]  nonce, 8 random bytes; or a 12-byte token, to extend the caller's claim
-- ARGV[8]  score in dead of expired ones: '' means now; +inf without a dead-letter target
-- ARGV[9]  most to promote first, 0 for none
-- ARGV[10] ready is full at this many
-- Returns  {poll, token, ids, records, flights, expired}; the flight of a first attempt is ''
-- Never repeated after a lost reply: the lease expires and costs one expiry
-- @include prelude batch record flight journal promote poll

local single = ARGV[3] == 'suspect'
local source = single and SUSPECT or READY
local most, limit_bytes = math.min(limited(ARGV[4]), single and 1 or MAX_BATCH), ARGV[5]
local deadline, nonce, dead_score = NOW + tonumber(ARGV[6]), ARGV[7], ARGV[8] == '' and NOW or ARGV[8]
promote(ARGV[9], ARGV[10])
local ids = redis.call('ZRANGE', source, '-inf', '+inf', 'BYSCORE', 'LIMIT', 0, most)
if #ids == 0 then return {poll(), '', {}, {}, {}, 0} end

local records = fetch(ids, limit_bytes)
local flights = hmget(FLIGHT, ids)
local token = #nonce == 12 and nonce or new_token(nonce)
local now_six = six(NOW)
local claimed, unack, dead, packed, expired, ghosts = {{}, {}, {}}, {}, {}, {}, {}, {}

local function lease(id, record, flight)
  local due_six = due_or(record, now_six)
  local leased = token .. due_six .. '\0\0\0\1' .. FRESH
  if flight or single then
    local f = open_flight(flight or fresh_flight(due_six))
    f.token, f.attempt, f.single = token, f.attempt + 1, single and 1 or 0
    leased = close_flight(f)
  end
  local n = #claimed[1] + 1
  claimed[1][n], claimed[2][n], claimed[3][n] = id, record, (flight or single) and leased or ''
  packed[#packed + 1], packed[#packed + 2] = id, leased
  unack[#unack + 1], unack[#unack + 2] = deadline, id
end

local function expire(id, record, flight)
  local f = open_flight(flight or fresh_flight(string.sub(record, 2, 7)))
  f.reason = EXPIRED
  packed[#packed + 1], packed[#packed + 2] = id, close_flight(f)
  dead[#dead + 1], dead[#dead + 2] = dead_score, id
  expired[#expired + 1], expired[#expired + 2] = id, flight_note(packed[#packed]) .. '\2'
end

-- An id without a record is corrupt: remove it from ready, do not claim it.
for i, id in ipairs(ids) do
  if records[i] and has_expired(records[i]) then
    expire(id, records[i], flights[i])
  elseif records[i] then
    lease(id, records[i], flights[i])
  else
    ghosts[#ghosts + 1] = id
  end
end

hset_as_table(FLIGHT, packed)
zadd(UNACK, unack)
zadd(DEAD, dead)
journal('expired', expired)
hdel(FLIGHT, ghosts)
redis.call('ZREMRANGEBYRANK', source, 0, #ids - 1)
return {poll(), token, claimed[1], claimed[2], claimed[3], #expired / 2}
