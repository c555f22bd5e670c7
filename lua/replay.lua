#!lua flags=allow-oom
-- replay.lua: schedule dead envelopes again, at an operator's request.
--
-- Transition  dead -> pending; the attempt number goes on, failures and expiries begin again, and
--             an expiry that is not after the new due instant is lifted
-- ARGV[4]  number of envelopes, then for each: id, delay ms
-- Returns  {now, answer, answer, ...}: replayed | in_flight (a shunt holds it) | unknown; the byte
--          limit may leave the last envelopes to the next call
-- @include prelude master life renewed batch record flight journal find_state

local count = tonumber(ARGV[4])
if count > MAX_BATCH then return redis.error_reply('LIMIT at most 1000 envelopes a call') end
local FIRST, WIDTH = 5, 2
local ids = first_fields(FIRST, WIDTH, count)
local records = fetch(ids, REWRITTEN_BYTES)
local reply, items = {NOW}, {}

local function renew(id, record, packed, due)
  local expires = string.sub(record, 8, 13)
  if number_at(expires, 1, 6) <= due then expires = NEVER end
  redis.call('HSET', ENVELOPES, id, moved_record(record, due, expires, next_generation(1)))
  local f = open_flight(packed)
  local again = open_flight(fresh_flight(six(due)))
  again.attempt, again.unsure = f.attempt, f.unsure
  redis.call('HSET', FLIGHT, id, close_flight(again))
  wake_before(due)
  redis.call('ZADD', PENDING, due, id)
  redis.call('ZREM', DEAD, id)
  items[#items + 1], items[#items + 2] = id, six(due)
end

local function replay(id, record, due)
  local score = redis.call('ZSCORE', DEAD, id)
  if not score or not is_known(record) then return 'unknown' end
  local packed = redis.call('HGET', FLIGHT, id) or fresh_flight(six(due))
  if is_being_shunted(packed, tonumber(score)) then return 'in_flight' end
  renew(id, record, packed, due)
  return 'replayed'
end

for i, id in ipairs(ids) do
  local delay = tonumber(ARGV[FIRST + WIDTH * i - 1])
  reply[1 + i] = replay(id, records[i], NOW_UP + delay)
end
journal('replayed', items)
return reply
