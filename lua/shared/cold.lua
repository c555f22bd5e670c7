-- Cold: what a shard knows of the ids that are in files (lua/README.md: The cold tier). It needs `batch`,
-- `memory` and `filter`.
-- meta has `hydrated_until` from before the first row goes cold; `cold_words` and `cold_marked`, the size
-- of the filter and how many ids changed it; `cold_floor`, the lowest generation in the files; `next_*`,
-- the same of the filter that a rebuild fills; `cold_side`, which of two keys is the filter in use;
-- `cold_lease`, who may bring rows back; `hydrating_until`, up to where the last hydrate that began does.
local cold = read_cold()
local COLD, COLD_NEXT = KEYS[14], KEYS[15]
if cold[7] == 'b' then COLD, COLD_NEXT = COLD_NEXT, COLD end
local COLD_WORDS, NEXT_WORDS = tonumber(cold[2] or 0), tonumber(cold[3] or 0)
local COLD_FLOOR, NEXT_FLOOR = tonumber(cold[4] or 0), tonumber(cold[5] or 0)

-- Whether a row may have gone cold. Older versions note `hydrated_until` just so.
local function has_cold_tier() return cold[1] ~= false end

-- Return the ids that may be cold. Without a filter, that is all.
local function which_may_be_cold(ids)
  if COLD_WORDS == 0 then return ids end
  return find_in_filter(COLD, ids, COLD_WORDS)
end

-- Whether an id that is not here may be cold; `is_configured`: the route has a cold tier.
local function may_be_cold(id, is_configured)
  return (has_cold_tier() or is_configured) and which_may_be_cold({id})[1] ~= nil
end

local function mark_filter(key, prefix, ids, words)
  if words > 0 then redis.call('HINCRBY', META, prefix .. '_marked', add_to_filter(key, ids, words)) end
end

local function lower_floors(generation)
  if generation < COLD_FLOOR then redis.call('HSET', META, 'cold_floor', generation) end
  if generation < NEXT_FLOOR then redis.call('HSET', META, 'next_floor', generation) end
end

-- Mark ids of rows that are cold, or about to be; a rebuild that runs must not miss them.
local function mark_cold(ids, lowest)
  mark_filter(COLD, 'cold', ids, COLD_WORDS)
  mark_filter(COLD_NEXT, 'next', ids, NEXT_WORDS)
  lower_floors(lowest)
end

local read_tombstones, tombstone_of, leave_tombstone, end_copies
do
  local found = {}

  -- Read the tombstones of ids with one command, for `tombstone_of`.
  function read_tombstones(ids)
    local values = read_memory('t', ids)
    for i, id in ipairs(ids) do found[id] = values[i] or false end
  end

  -- The tombstone of an id, whatever its age: its rows may be read later than anyone thought.
  function tombstone_of(id)
    local value = found[id]
    if value == nil then value = redis.call('HGET', MEMORY, 't' .. id) end
    if not value then return end
    return {left = number_at(value, 7, 12), due = number_at(value, 13, 18),
      cancelled = number_at(value, 19, 24), ended = #value >= 30 and number_at(value, 25, 30) or 0,
      cancelled_at = #value >= 36 and number_at(value, 31, 36) or nil}
  end

  function leave_tombstone(id, given, keep_ms)
    local value = six(given.left) .. six(given.due) .. six(given.cancelled) .. six(given.ended)
    if given.cancelled_at then value = value .. six(given.cancelled_at) end
    found[id] = nil
    memorize('t' .. id, value, keep_ms > 0 and keep_ms or 24 * 3600 * 1000)
  end

  -- End the copies of an id up to a generation, cold or on their way to files.
  function end_copies(id, generation, keep_ms)
    leave_tombstone(id, {left = generation, due = 0, cancelled = generation, ended = generation}, keep_ms)
  end
end

-- How long a note stays until it is looked at, which a schedule or reschedule leaves of the copies that it
-- ends. Until a job of the route's life has made the filter, there is one for each of their ids: before any
-- ran, for a day, so that a tier whose jobs never run fills no store.
local function note_ms(keep_ms)
  return has_cold_tier() and keep_ms or math.min(keep_ms, 24 * 3600 * 1000)
end

-- Cancel the cold rows of an id that the store does not have.
local function cancel_cold(id, keep_ms)
  local generation, before = next_generation(0), tombstone_of(id)
  local left = {left = generation, due = 0, cancelled = generation,
    ended = before and before.ended or 0, cancelled_at = NOW}
  leave_tombstone(id, left, keep_ms)
end

-- End the cold copies, up to a generation, of ids that begin a new life or end here; `is_configured` as of
-- may_be_cold: an earlier life of the route may have left files.
local function end_cold_copies(ids, generation, keep_ms, is_configured)
  if not (has_cold_tier() or is_configured) or #ids == 0 then return end
  for _, id in ipairs(which_may_be_cold(ids)) do
    end_copies(id, generation, keep_ms)
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
