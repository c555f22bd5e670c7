#!lua flags=allow-oom
-- claim.lua: lease ready envelopes to one worker, earliest first; expired ones go to dead.
--
-- Transition  ready -> unack (or dead, reason expired), optionally after pending | retry -> ready:
-- for a trickle, one call instead of two halves the server's work
-- ARGV[4]  ready; or suspect: claimed alone
-- ARGV[5]  most to claim
-- ARGV[6]  most bytes of records to claim, but at least one envelope
-- ARGV[7]  lease, ms
-- ARGV[8]  nonce, 8 random bytes; or a 12-byte token, to extend the caller's claim
-- ARGV[9]  score in dead of expired ones: '' means now; +inf without a dead-letter target
-- ARGV[10]  most to promote first, 0 for none
-- ARGV[11] ready is full at this many
-- Returns  {poll, token, ids, records, flights, expired}; the flight of a first attempt is ''
-- Never repeated after a lost reply: the lease expires and costs one expiry
-- @include prelude master life renewed batch record flight journal promote poll lease

local single = ARGV[4] == 'suspect'
local source = single and SUSPECT or READY
local most, limit_bytes = math.min(limited(ARGV[5]), single and 1 or MAX_BATCH), ARGV[6]
local deadline, nonce, dead_score = NOW + tonumber(ARGV[7]), ARGV[8], ARGV[9] == '' and NOW or ARGV[9]
promote(ARGV[10], ARGV[11])
local ids = redis.call('ZRANGE', source, '-inf', '+inf', 'BYSCORE', 'LIMIT', 0, most)
if #ids == 0 then return {poll(), '', {}, {}, {}, 0} end

local records = fetch(ids, limit_bytes)
local flights = hmget(FLIGHT, ids)
local leases = new_leases(#nonce == 12 and nonce or new_token(nonce), deadline, dead_score)
for i, id in ipairs(ids) do take(leases, id, records[i], flights[i], single) end

write_leases(leases)
redis.call('ZREMRANGEBYRANK', source, 0, #ids - 1)
return leases_reply(leases)
