-- The batch of schedule.lua: answers envelopes one by one, writes them together.
local function new_batch(count)
  local last = next_generation(count)
  return {reply = {NOW}, records = {}, scores = {}, accepted = {}, replaced = {}, cancelled = {},
    leaving = {}, seen = {}, largest = 0, earliest = math.huge, generation = last - count, last = last}
end

-- Return unused generations, so that the counter equals the number of due instants assigned.
local function return_generations(batch)
  if batch.generation < batch.last then next_generation(batch.generation - batch.last) end
end

local function add_record(batch, given)
  batch.generation = batch.generation + 1
  local record = new_record(given.due, given.expires, given.remember, batch.generation, given.hash,
    given.blob)
  batch.seen[given.id] = record
  local n = #batch.records
  batch.records[n + 1], batch.records[n + 2] = given.id, record
  batch.scores[n + 1], batch.scores[n + 2] = given.due, given.id
  batch.largest = math.max(batch.largest, #record)
  batch.earliest = math.min(batch.earliest, given.due)
end

-- A tombstone cancels this cold row: journal it, only once while the id is remembered.
local function end_cancelled(batch, given)
  local items = batch.cancelled
  items[#items + 1], items[#items + 2] = given.id, six(given.due) .. '\0\0\0\0'
  remember_id(given.id, six(given.due), given.hash, CANCELLED, given.remember)
end

local function answer(batch, status, given)
  local reply, items = batch.reply, batch[status]
  reply[#reply + 1], reply[#reply + 2] = status, given.due
  if given.has_ended then return end
  if status == 'cancelled' then return end_cancelled(batch, given) end
  if not items then return end
  add_record(batch, given)
  if given.is_revived then items = batch.accepted end
  items[#items + 1], items[#items + 2] = given.id, six(given.due)
  if given.leaves then batch.leaving[#batch.leaving + 1] = given end
end

-- Remove a replaced envelope from its old state after the new one is written.
local function leave_old_state(given)
  if given.leaves ~= PENDING then redis.call('ZREM', given.leaves, given.id) end
  redis.call('HDEL', FLIGHT, given.id)
end

local function write_batch(batch)
  journal('cancelled', batch.cancelled)
  if #batch.records == 0 then return end
  wake_before(batch.earliest)
  if batch.largest > tonumber(redis.call('HGET', META, 'largest') or 0) then
    redis.call('HSET', META, 'largest', batch.largest)
  end
  hset(ENVELOPES, batch.records)
  zadd(PENDING, batch.scores)
  journal('accepted', batch.accepted)
  journal('replaced', batch.replaced)
  for _, given in ipairs(batch.leaving) do leave_old_state(given) end
end
