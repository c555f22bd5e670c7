#!lua flags=allow-oom
-- demote.lua: remove envelopes whose copies are safe in the cold tier.
--
-- Transition  pending -> (the cold tier), if unchanged since it was copied; else the copy is void, and so
--          are later ones of its id in the batch: a reader finds an envelope twice that moves ahead of it.
--          An envelope that is due before a hydrate's end stays: that hydrate may not have seen the batch.
--          One whose copies a tombstone binds stays too, with a new generation for the next batch
-- ARGV[4]  the batch of copies; its stored progress prevents processing a row twice
-- ARGV[5]  index in the batch of the first row of this call, from 0
-- ARGV[6]  when the batch's progress and its void copies are looked at again, ms
-- ARGV[7]  number of rows, then for each: id, generation
-- Returns  {now, rows of the batch done, removed, void}; the byte limit may leave the last
--          rows of a call to the next call
-- @include prelude master life renewed batch record journal memory filter cold

local batch, first, keep, count = ARGV[4], tonumber(ARGV[5]), tonumber(ARGV[6]), tonumber(ARGV[7])
if keep == 0 then return redis.error_reply('COLD expected a route with a cold tier') end
if count > MAX_BATCH then return redis.error_reply('LIMIT at most 1000 rows a call') end

local done, removed, void = 0, 0, 0
local before = redis.call('HGET', MEMORY, 'd' .. batch)  -- whatever its age
if before then done, removed, void = struct.unpack('>I6I6I6', before, 7) end
if first > done then return redis.error_reply('ORDER row ' .. done .. ' of ' .. batch .. ' is next') end
if first + count <= done then return {NOW, done, removed, void} end

local ids, generations, lowest = {}, {}, math.huge
local FIRST = 8
for at = FIRST + 2 * (done - first), FIRST - 2 + 2 * count, 2 do
  ids[#ids + 1], generations[#generations + 1] = ARGV[at], tonumber(ARGV[at + 1])
  lowest = math.min(lowest, generations[#generations])
end
local records = fetch(ids, MAX_BYTES)
local flights = hmget(FLIGHT, ids)
local scores = redis.call('ZMSCORE', PENDING, unpack(ids))

-- Everything due before this is to be in the store.
local kept_until = math.max(tonumber(cold[1] or 0), tonumber(cold[8] or 0))

-- A copy has no attempts, so an envelope that was ever claimed stays.
local function may_leave(i)
  local record = records[i]
  return is_known(record) and number_at(record, 26, 31) == generations[i] and not flights[i]
    and scores[i] and tonumber(scores[i]) >= kept_until
end

-- Return which of the ids have a void copy in the batch already.
local function ids_of_void_copies()
  local found = {}
  if void == 0 then return found end
  for i, value in ipairs(read_memory('x' .. batch .. '/', ids)) do found[ids[i]] = value and true end
  return found
end

-- Whether the copy would not come back as it is, though the envelope lives: mark.lua ends all copies of
-- an id that is here.
local function is_bound(i)
  local tombstone = tombstone_of(ids[i])
  return tombstone and tombstone.left >= generations[i]
end

local function renumber(i)
  local record = records[i]
  local due, expires = number_at(record, 2, 7), string.sub(record, 8, 13)
  redis.call('HSET', ENVELOPES, ids[i], moved_record(record, due, expires, next_generation(1)))
end

-- Forget an earlier life with the same content: what is remembered of it would judge the copy that comes
-- back. Other content that is delivered again stays known.
local function forget_earlier_lives(leaving, hashes)
  local over, values, names = {}, read_memory('r', leaving)
  for i, value in ipairs(values) do
    if value and string.sub(value, 13, 20) == hashes[i] then over[#over + 1] = names[i] end
  end
  hdel(MEMORY, over)
  zrem(FORGET, over)
end

read_tombstones(ids)
local is_void = ids_of_void_copies()
local leaving, hashes, items = {}, {}, {}
for i, id in ipairs(ids) do
  local is_same = may_leave(i) and not is_void[id]
  if is_same and not is_bound(i) then
    leaving[#leaving + 1], hashes[#hashes + 1] = id, string.sub(records[i], 32, 39)
    items[#items + 1], items[#items + 2] = id, string.sub(records[i], 2, 7)
  else
    if is_same then renumber(i) end
    is_void[id] = true
    memorize('x' .. batch .. '/' .. id, six(generations[i]), keep)
  end
end

done, removed, void = done + #ids, removed + #leaving, void + #ids - #leaving
memorize('d' .. batch, struct.pack('>I6I6I6I6', done, removed, void, next_generation(0)), keep)
mark_cold(ids, lowest)
journal('demoted', items)
forget_earlier_lives(leaving, hashes)
hdel(ENVELOPES, leaving)
zrem(PENDING, leaving)
return {NOW, done, removed, void}
