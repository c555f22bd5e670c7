#!lua flags=allow-oom
-- shunt.lua: lease due dead envelopes, so that one worker sends their dead letters.
--
-- Transition  dead -> dead, leased; ack ends it, postpone or the lease's end repeats it
-- ARGV[4]  most to lease
-- ARGV[5]  most bytes of records, but at least one envelope
-- ARGV[6]  lease, ms
-- ARGV[7]  nonce, 8 random bytes
-- Returns  {poll, token, ids, records, flights}
-- Never repeated after a lost reply: the lease expires
-- @include prelude master life renewed batch record flight poll

local ids = redis.call('ZRANGE', DEAD, '-inf', NOW, 'BYSCORE', 'LIMIT', 0, limited(ARGV[4]))
if #ids == 0 then return {poll(), '', {}, {}, {}} end

local limit_bytes, deadline, nonce = ARGV[5], NOW + tonumber(ARGV[6]), ARGV[7]
local records = fetch(ids, limit_bytes)
local flights = hmget(FLIGHT, ids)
local token = new_token(nonce)
local leased, packed, scores, ghosts = {{}, {}, {}}, {}, {}, {}

-- An id without a record is corrupt: delete it.
for i, id in ipairs(ids) do
  if records[i] then
    local f = open_flight(flights[i] or fresh_flight(six(NOW)))
    f.token, f.shunting = token, 1
    local n = #leased[1] + 1
    leased[1][n], leased[2][n], leased[3][n] = id, records[i], close_flight(f)
    packed[#packed + 1], packed[#packed + 2] = id, leased[3][n]
    scores[#scores + 1], scores[#scores + 2] = deadline, id
  else
    ghosts[#ghosts + 1] = id
  end
end

hset(FLIGHT, packed)
zadd(DEAD, scores)
hdel(FLIGHT, ghosts)
zrem(DEAD, ghosts)
return {poll(), token, leased[1], leased[2], leased[3]}
