-- Cold: what a shard knows of the ids that are in files (lua/README.md: The cold tier). It needs `batch`
-- and `memory`.
-- meta has `hydrated_until` from before the first row goes cold; `cold_bits` and `cold_marked`, the size
-- of the filter and how many ids changed it; `cold_floor`, the lowest generation in the files; `next_*`,
-- the same of the filter that a rebuild fills; `cold_side`, which of two keys is the filter in use;
-- `cold_lease`, who may bring rows back.
local cold = redis.call('HMGET', META, 'hydrated_until', 'cold_bits', 'next_bits', 'cold_floor',
  'next_floor', 'cold_lease', 'cold_side')
local IS_B = cold[7] == 'b'
local COLD, COLD_NEXT = KEYS[IS_B and 15 or 14], KEYS[IS_B and 14 or 15]
local COLD_BITS, NEXT_BITS = tonumber(cold[2] or 0), tonumber(cold[3] or 0)
local COLD_FLOOR, NEXT_FLOOR = tonumber(cold[4] or 0), tonumber(cold[5] or 0)
local DAY_MS = 24 * 3600 * 1000

-- Whether a row may have gone cold. Older versions note `hydrated_until` just so.
local function has_cold_tier() return cold[1] ~= false end

-- A filter sets BITS_OF_ID bits for each id: one that has them all may be cold, any other is not.
local BITS_OF_ID, IDS_OF_COMMAND = 4, 100

-- The BITFIELD of ids[first..last]: GET of their bits, or SET.
local function bitfield(ids, first, last, size, verb, value)
  local command, n = {}, 0
  for i = first, last do
    local digest = redis.sha1hex(ids[i])
    local bit, step = tonumber(string.sub(digest, 1, 8), 16), tonumber(string.sub(digest, 9, 16), 16)
    for _ = 1, BITS_OF_ID do
      bit = (bit + step) % size
      command[n + 1], command[n + 2], command[n + 3], command[n + 4] = verb, 'u1', bit, value
      n = n + (value and 4 or 3)
    end
  end
  return command
end

-- Run it for all ids, some at a time; `each` gets every id and the sum of what its bits were.
local function with_bits(key, ids, size, each, verb, value)
  for first = 1, #ids, IDS_OF_COMMAND do
    local last = math.min(first + IDS_OF_COMMAND - 1, #ids)
    local bits = redis.call('BITFIELD', key, unpack(bitfield(ids, first, last, size, verb, value)))
    for i = first, last do
      local n = (i - first) * BITS_OF_ID
      each(ids[i], bits[n + 1] + bits[n + 2] + bits[n + 3] + bits[n + 4])
    end
  end
end

-- Return the ids that may be cold. Without a filter, that is all.
local function which_may_be_cold(ids)
  if COLD_BITS == 0 then return ids end
  local found = {}
  with_bits(COLD, ids, COLD_BITS, function(id, sum)
    if sum == BITS_OF_ID then found[#found + 1] = id end
  end, 'GET')
  return found
end

-- Whether an id that is not here may be cold; `is_configured`: the route has a cold tier.
local function may_be_cold(id, is_configured)
  return (has_cold_tier() or is_configured) and which_may_be_cold({id})[1] ~= nil
end

local function mark_filter(key, prefix, ids, size)
  if size == 0 then return end
  local changed = 0
  with_bits(key, ids, size, function(_, sum)
    if sum < BITS_OF_ID then changed = changed + 1 end
  end, 'SET', 1)
  redis.call('HINCRBY', META, prefix .. '_marked', changed)
end

local function lower_floors(generation)
  if generation < COLD_FLOOR then redis.call('HSET', META, 'cold_floor', generation) end
  if generation < NEXT_FLOOR then redis.call('HSET', META, 'next_floor', generation) end
end

-- Mark ids of rows that are cold, or about to be; a rebuild that runs must not miss them.
local function mark_cold(ids, lowest)
  mark_filter(COLD, 'cold', ids, COLD_BITS)
  mark_filter(COLD_NEXT, 'next', ids, NEXT_BITS)
  lower_floors(lowest)
end

-- The tombstone of an id, whatever its age: its rows may be read later than anyone thought.
local function tombstone_of(id)
  local value = redis.call('HGET', MEMORY, 't' .. id)
  if not value then return end
  local ended = #value >= 30 and number_at(value, 25, 30) or 0
  return {left = number_at(value, 7, 12), due = number_at(value, 13, 18),
    cancelled = number_at(value, 19, 24), ended = ended}
end

local function leave_tombstone(id, left, due, cancelled, ended, keep_ms)
  local value = six(left) .. six(due) .. six(cancelled) .. six(ended)
  memorize('t' .. id, value, keep_ms > 0 and keep_ms or DAY_MS)
end

-- Cancel the cold rows of an id that the store does not have.
local function cancel_cold(id, keep_ms)
  local generation, before = next_generation(0), tombstone_of(id)
  leave_tombstone(id, generation, 0, generation, before and before.ended or 0, keep_ms)
end

-- End the cold copies, up to a generation, of ids that begin anew or end here.
local function end_cold_copies(ids, generation, keep_ms)
  if not has_cold_tier() or #ids == 0 then return end
  for _, id in ipairs(which_may_be_cold(ids)) do
    leave_tombstone(id, generation, 0, generation, generation, keep_ms)
  end
end

local function holder_of_cold()
  local token, since, deadline, who = string.match(cold[6] or '', '^(%S+) (%d+) (%d+) (.*)$')
  return token, tonumber(since), tonumber(deadline), who
end

-- Whether a call must be refused: it has the token of a lease that another job has, or nobody.
local function has_lost_cold_lease(token)
  return (token or '') ~= '' and holder_of_cold() ~= token
end

local function refuse_without_lease()
  local _, since, _, who = holder_of_cold()
  return redis.error_reply('HELD expected the lease of the cold tier; ' ..
    (who and who .. ' has it since ' .. since or 'it ran out'))
end
