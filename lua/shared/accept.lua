-- The batch of schedule.lua: answers envelopes one by one, writes them together.
local function new_batch(count)
  local last = next_generation(count)
  return {reply = {NOW}, records = {}, scores = {}, accepted = {}, replaced = {}, cancelled = {},
    leaving = {}, seen = {}, besides = {}, new_besides = {}, displaced = {}, anew = {},
    is_ended = {}, largest = 0, earliest = math.huge,
    generation = last - count, last = last, before = last - count}
end

-- Return unused generations, so that the counter equals the number of due instants assigned.
local function return_generations(batch)
  if batch.generation < batch.last then next_generation(batch.generation - batch.last) end
end

local accept_new, add_record
do
  local format = string.format  -- here: looked up for each envelope

  -- Write a record at place n of the batch.
  local function put_record(batch, n, id, due, record)
    local records, scores = batch.records, batch.scores
    records[n + 1], records[n + 2] = id, record
    scores[n + 1], scores[n + 2] = format('%d', due), id  -- the server takes longer to write a number
    if #record > batch.largest then batch.largest = #record end
    if due < batch.earliest then batch.earliest = due end
  end

  -- Add a record, or put it in the place of the one that it replaces in this batch.
  function add_record(batch, given)
    local earlier, generation = earlier_of(batch, given.id), batch.generation + 1
    batch.generation = generation
    given.place = earlier and earlier.place or #batch.records
    given.record = new_record(given.due, given.expires, given.remember, generation, given.content)
    batch.seen[given.id] = given
    put_record(batch, given.place, given.id, given.due, given.record)
  end

  -- Accept an envelope that nothing in this shard has met.
  function accept_new(batch, id, due, expires, remember, content)
    local reply, items, anew, n = batch.reply, batch.accepted, batch.anew, #batch.records
    local generation, m = batch.generation + 1, #items
    reply[#reply + 1], reply[#reply + 2] = 'accepted', due
    batch.generation, batch.seen[id] = generation, n
    put_record(batch, n, id, due, new_record(due, expires, remember, generation, content))
    items[m + 1], items[m + 2] = id, six(due)
    anew[#anew + 1] = id
  end
end

-- A tombstone cancels this cold row: journal it, only once while the id is remembered.
local function end_cancelled(batch, given)
  local items = batch.cancelled
  items[#items + 1], items[#items + 2] = given.id, six(given.due) .. '\0\0\0\0'
  batch.is_ended[given.id] = true
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
  if given.generation == 0 then batch.anew[#batch.anew + 1] = given.id end
end

-- Remove a replaced envelope from its old state after the new one is written. A dead one may be out
-- under this id: the new life is unsure as well. A queue, which has no places, may redeliver it.
local function leave_old_state(given)
  if given.is_unsure then
    local f = open_flight(fresh_flight(six(given.due)))
    f.unsure = 1
    redis.call('HSET', FLIGHT, given.id, close_flight(f))
  else
    redis.call('HDEL', FLIGHT, given.id)
  end
  if given.leaves ~= PENDING then redis.call('ZREM', given.leaves, given.id) end
  local remember = given.former and not given.is_placed and number_at(given.former, 14, 19) or 0
  if remember > 0 then add_earlier(given.id, string.sub(given.former, 32, 39), NOW + remember) end
end

-- A repeat of a living envelope may name a longer time to remember its id than the record has: the longer one
-- counts. Of one that has ended it does so where the id is held, and counts from its due instant, so that
-- repeats do not put off the end for ever.
local remember_longer
do
  -- A worker that has it leased knows the time before: ack is to read the record.
  local function tell_ack(id)
    local flight = redis.call('HGET', FLIGHT, id)
    if not flight or is_marked(flight) then return end
    local f = open_flight(flight)
    f.cancel = 2
    redis.call('HSET', FLIGHT, id, close_flight(f))
  end

  local function raise_record(batch, id, record, remember)
    local earlier = earlier_of(batch, id)
    record = string.sub(record, 1, 13) .. six(remember) .. string.sub(record, 20)
    if earlier then
      earlier.record, batch.records[earlier.place + 2] = record, record
    else
      redis.call('HSET', ENVELOPES, id, record)
      tell_ack(id)
    end
  end

  local function raise_memory(id, ended, remember)
    local until_ms = math.min(number_at(ended, 1, 6), NOW) + remember
    local known = redis.call('HGET', MEMORY, 'r' .. id)
    if known and number_at(known, 1, 6) < until_ms then memorize('r' .. id, ended, until_ms - NOW) end
  end

  function remember_longer(batch, call, given, status)
    local record, ended = given.same_living, given.same_ended
    if status == 'duplicate' and record then
      if number_at(record, 14, 19) < given.remember then
        raise_record(batch, given.id, record, given.remember)
      end
    elseif given.has_ended and ended and call.holds then
      raise_memory(given.id, ended, given.remember)
    end
  end
end

local function write_batch(batch, call)
  journal('cancelled', batch.cancelled)
  if #batch.records == 0 then return end
  end_cold_copies(batch.anew, batch.before, call.note_ms, call.has_cold_tier)
  wake_before(batch.earliest)
  note_largest(batch.largest)
  hset(ENVELOPES, batch.records)
  zadd(PENDING, batch.scores)
  journal('accepted', batch.accepted)
  journal('replaced', batch.replaced)
  for _, given in ipairs(batch.leaving) do leave_old_state(given) end
end
