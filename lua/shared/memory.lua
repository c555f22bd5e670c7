-- Memory: entries that outlive an envelope or a call, until they expire, and the end of an envelope.
-- `b` what is stored beside an id (shared/beside.lua), `c` answers of calls,
-- `r` remembered ids (due, hash, and the end: DELIVERED where there is none, as
-- duebridge 0.2.0 left it); on a route with a cold tier `t` tombstones
-- (generation, new due or zeros, the generation up to which rows are cancelled or zeros), `d` progress
-- of a demoted batch (rows done, removed, void), `x` void copies of a batch.
-- A value begins with its expiry (6 bytes). Each write drops a few expired ones, and forget.lua the
-- rest, so that a shard stays tidy without a worker, and with one that is idle.
local few_expired, has_expired_ones = 8, true

local function drop_expired()
  local names = redis.call('ZRANGE', FORGET, '-inf', NOW, 'BYSCORE', 'LIMIT', 0, few_expired)
  has_expired_ones = #names == few_expired
  if #names == 0 then return end
  redis.call('HDEL', MEMORY, unpack(names))
  redis.call('ZREM', FORGET, unpack(names))
  few_expired = 2  -- of a batch: still more than it adds
end

local function memorize(name, value, keep_ms)
  if has_expired_ones then drop_expired() end
  local expiry = NOW + keep_ms
  redis.call('HSET', MEMORY, name, six(expiry) .. value)
  redis.call('ZADD', FORGET, expiry, name)
end

local function unexpired(value)
  return value and number_at(value, 1, 6) > NOW and string.sub(value, 7)
end

local function recall(name) return unexpired(redis.call('HGET', MEMORY, name)) end

-- Cancel the cold rows of an id that the store does not have: a tombstone.
local function cancel_cold(id, keep_ms)
  local generation = six(next_generation(0))
  memorize('t' .. id, generation .. NEVER .. generation, keep_ms)
end

local DELIVERED, CANCELLED, DIED = '\0', '\1', '\2'
local function remember_id(id, due_six, hash, ended, remember_ms)
  if remember_ms > 0 then memorize('r' .. id, due_six .. hash .. ended, remember_ms) end
end

-- Delete an envelope and its flight; remember its id, hash and end for its `remember` time.
local function finish(id, record, ended)
  if is_known(record) then
    local due, hash = string.sub(record, 2, 7), string.sub(record, 32, 39)
    remember_id(id, due, hash, ended, number_at(record, 14, 19))
  end
  redis.call('HDEL', ENVELOPES, id)
  redis.call('HDEL', FLIGHT, id)
end

-- Apply a cancel that waited for the end of the lease; `items` are the journal's.
local function finish_cancelled(id, f, items)
  items[#items + 1] = id
  items[#items + 1] = six(f.due) .. struct.pack('>I4', f.attempt)
  finish(id, redis.call('HGET', ENVELOPES, id), CANCELLED)
end
