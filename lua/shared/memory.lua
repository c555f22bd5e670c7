-- Memory: entries that outlive an envelope or a call, until they expire, and the end of an envelope.
-- `b` what is stored beside an id (shared/beside.lua), `c` answers of calls, `e` what ended under an id before
-- the content that `r` has (until when it is remembered, and hash; of the newest 32),
-- `r` remembered ids (due, hash, and the end: DELIVERED where there is none, as
-- duebridge 0.2.0 left it); on a route with a cold tier `t` tombstones
-- (generation, new due or zeros, the generations up to which rows are cancelled or zeros, and have
-- ended; then the instant of a recorded cancel, where there was one and the id has not begun anew), `d`
-- progress of a demoted batch (rows done, removed, void, and the shard's generation), `x` void copies of
-- a batch (generation). An earlier duebridge left no generation in `d` and `x`, and in `t` none up to
-- which rows have ended, and no instant.
-- A value begins with its expiry (6 bytes). Each write drops a few expired ones, and forget.lua the
-- rest, so that a shard stays tidy without a worker, and with one that is idle.
local read_cold, drop_over, memorize, memorize_first
do
  local few_expired, has_expired_ones, mark_ms = 8, true, 24 * 3600 * 1000
  local cold

  -- What meta has of the cold tier (shared/cold.lua), in this order; read once.
  function read_cold()
    cold = cold or redis.call('HMGET', META, 'hydrated_until', 'cold_words', 'next_words', 'cold_floor',
      'next_floor', 'cold_lease', 'cold_side', 'hydrating_until')
    return cold
  end

  -- The lowest generation that a cold row may have; +inf where no row ever went cold.
  local function lowest_cold()
    local found = read_cold()
    return found[1] and tonumber(found[4] or 0) or math.huge
  end

  -- Where a note on cold rows has the generation up to which it may concern them, by the note's kind.
  local generation_at = {t = 7, x = 7, d = 25}

  -- Return a note on cold rows, nil for anything else. That of an earlier duebridge gets the shard's
  -- generation, so that it ends as well.
  local function cold_note(name, value)
    local at = generation_at[string.sub(name, 1, 1)]
    if not at or not value then return end
    if #value == at - 1 then value = value .. six(redis.call('HGET', META, 'generation') or 0) end
    return value, #value >= at + 5 and number_at(value, at, at + 5) or math.huge
  end

  -- Drop what is over, and return how many that were. A note on cold rows that may still be needed stays
  -- for another day: no time ends it, since a row may be read late, and a batch may be demoted late.
  function drop_over(names)
    if #names == 0 then return 0 end
    local values, floor, over = redis.call('HMGET', MEMORY, unpack(names)), lowest_cold(), {}
    for i, name in ipairs(names) do
      local note, generation = cold_note(name, values[i])
      if note and generation >= floor and floor ~= math.huge then
        redis.call('HSET', MEMORY, name, six(NOW + mark_ms) .. string.sub(note, 7))
        redis.call('ZADD', FORGET, NOW + mark_ms, name)
      else
        over[#over + 1] = name
      end
    end
    if #over == 0 then return 0 end
    redis.call('HDEL', MEMORY, unpack(over))
    redis.call('ZREM', FORGET, unpack(over))
    return #over
  end

  local function drop_expired()
    local names = redis.call('ZRANGE', FORGET, '-inf', NOW, 'BYSCORE', 'LIMIT', 0, few_expired)
    has_expired_ones = #names == few_expired
    if #names == 0 then return end
    drop_over(names)
    few_expired = 2  -- of a batch: still more than it adds
  end

  function memorize(name, value, keep_ms)
    if has_expired_ones then drop_expired() end
    local expiry = NOW + keep_ms
    redis.call('HSET', MEMORY, name, six(expiry) .. value)
    redis.call('ZADD', FORGET, expiry, name)
  end

  -- Memorize what has no entry of its name; return whether it had none.
  function memorize_first(name, value, keep_ms)
    if redis.call('HSETNX', MEMORY, name, six(NOW + keep_ms) .. value) == 0 then return false end
    redis.call('ZADD', FORGET, NOW + keep_ms, name)
    if has_expired_ones then drop_expired() end
    return true
  end
end

local function unexpired(value)
  return value and number_at(value, 1, 6) > NOW and string.sub(value, 7)
end

local function recall(name) return unexpired(redis.call('HGET', MEMORY, name)) end

-- What memory has of ids under a prefix, whatever its age, and the names there; nothing while it is empty.
local function read_memory(prefix, ids)
  local names = {}
  if redis.call('HLEN', MEMORY) == 0 then return {}, names end
  for i, id in ipairs(ids) do names[i] = prefix .. id end
  return hmget(MEMORY, names), names
end

-- Earlier ends of an id, by which an intake knows what is redelivered (recall.lua), though other content has
-- replaced it or has ended under the id since.
local add_earlier, keep_earlier, is_among_earlier
do
  local MOST, BYTES = 32, 14

  function add_earlier(id, hash, until_ms)
    local kept, others, last = {six(until_ms) .. hash}, recall('e' .. id) or '', until_ms
    for at = 1, #others, BYTES do
      local until_other, other = number_at(others, at, at + 5), string.sub(others, at + 6, at + BYTES - 1)
      if until_other > NOW and other ~= hash and #kept < MOST then
        kept[#kept + 1], last = six(until_other) .. other, math.max(last, until_other)
      end
    end
    memorize('e' .. id, table.concat(kept), last - NOW)
  end

  -- Before other content is remembered of an id: keep what is remembered of it now.
  function keep_earlier(id, hash)
    local known = redis.call('HGET', MEMORY, 'r' .. id)
    if not unexpired(known) or string.sub(known, 13, 20) == hash then return end
    add_earlier(id, string.sub(known, 13, 20), number_at(known, 1, 6))
  end

  function is_among_earlier(earlier, hash)
    for at = 1, #earlier, BYTES do
      local is_kept = number_at(earlier, at, at + 5) > NOW
      if is_kept and string.sub(earlier, at + 6, at + BYTES - 1) == hash then return true end
    end
  end
end

local DELIVERED, CANCELLED, DIED = '\0', '\1', '\2'
local function remember_id(id, due_six, hash, ended, remember_ms)
  if remember_ms <= 0 then return end
  local name, value = 'r' .. id, due_six .. hash .. ended
  if memorize_first(name, value, remember_ms) then return end
  keep_earlier(id, hash)
  memorize(name, value, remember_ms)
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
  finish(id, read_one(id), CANCELLED)
end

-- Leave a cancelled envelope to the next reclaim, since this call has read enough: it is leased to nobody,
-- its lease is over, and marked.
local NO_CALL = string.rep('\255', 12)  -- a token that no call has
local function finish_later(id, key)
  local f = open_flight(redis.call('HGET', FLIGHT, id)
    or fresh_flight(six(tonumber(redis.call('ZSCORE', key, id)))))
  f.token, f.cancel = NO_CALL, 1
  redis.call('HSET', FLIGHT, id, close_flight(f))
  redis.call('ZADD', UNACK, NOW, id)
  redis.call('ZREM', key, id)
end
