-- Decides what schedule.lua answers for one envelope; writes nothing.
--
-- The head of an envelope: flags (1: due counts from now, 2: expires does), then 8 bytes each: due, expires
-- (0: never) and remember, ms, and the generation (0: not a cold row).
local function read_head(head)
  local flags, due, expires, remember, generation = struct.unpack('>BI8I8I8I8', head)
  if flags % 2 == 1 then due = NOW_UP + due end
  if flags >= 2 then expires = NOW_UP + expires end
  return due, expires, remember, generation
end

-- The envelope of this batch that has an id, if one does; of one that accept_new has added, its record.
local function earlier_of(batch, id)
  local seen = batch.seen[id]
  if type(seen) ~= 'number' then return seen end
  return {record = batch.records[seen + 2], place = seen}
end

-- Return those of the ids whose tombstone is asked for: all that are for one use or held, else what a cold
-- row has.
local function bound_ids(first, width, ids, call)
  local found, no_generation = {}, string.rep('\0', 8)
  if call.is_bound then return ids end
  for i, id in ipairs(ids) do
    if string.sub(ARGV[first + (i - 1) * width + 1], -8) ~= no_generation then found[#found + 1] = id end
  end
  return found
end

-- Whether a delivery of what has the id may be out, so that it cannot be replaced; `given` gets the
-- key that it leaves, and whether it is unsure.
local function may_be_out(given)
  local state, key, score = find_state(given.id)
  local flight = redis.call('HGET', FLIGHT, given.id)
  given.leaves, given.is_unsure = key, is_unsure(flight)
  return state == 'unack' or (state ~= 'dead' and given.is_unsure)
    or is_being_shunted(flight, score or 0)
end

-- Return why a new envelope is refused; what was there before never is.
local function refusal(call, due, expires)
  if due - NOW_UP > call.max_delay then return 'too_far' end
  if expires > 0 and expires <= due then return 'expires_before_due' end
end

local judge
do
  -- Whether a cold row ended when its id began a new life, or ended here: the journal says nothing of it.
  local function has_copy_ended(given)
    local tombstone = tombstone_of(given.id)
    return tombstone and tombstone.ended >= given.generation
  end

  -- The id exists: equal content is a duplicate, unless it is news after a cancel that waits for the end of
  -- the lease: from a later place, or replaced by a caller. Other content replaces it only if it is not in
  -- flight. A cold row that ended when its id began a new life never does.
  -- `earlier` is the envelope of this batch that has the id, if one does.
  local function judge_living(call, given, record, earlier)
    if not is_known(record) then return 'conflict' end
    given.due = number_at(record, 2, 7)
    if string.sub(record, 32, 39) == given.hash then
      local is_news = not earlier and (given.is_placed or call.replace and call.revives)
      if is_news and is_marked(redis.call('HGET', FLIGHT, given.id)) then return 'in_flight' end
      given.same_living = record
      return 'duplicate'
    end
    if given.generation > 0 and has_copy_ended(given) then return 'duplicate' end
    if not call.replace then return 'conflict' end
    if earlier and earlier.is_unsure or not earlier and may_be_out(given) then return 'in_flight' end
    given.due, given.former = given.wanted, not earlier and record
    return 'replaced'
  end

  -- A tombstone applies to cold rows that are not newer than itself. No file has rows below the floor. A
  -- row that comes anew under an id for one use is what went cold, and was cancelled there; under an id that
  -- is held it is so for its remember time from its cancel on.
  local function judge_cold(call, given)
    if given.generation == 0 then
      local left = call.is_bound and tombstone_of(given.id)
      given.has_ended = left and left.cancelled > left.ended
        and (call.is_once or left.cancelled_at and NOW < left.cancelled_at + given.remember)
      return given.has_ended and 'cancelled'
    end
    given.has_ended = given.generation < COLD_FLOOR or has_copy_ended(given)
    if given.has_ended then return given.generation < COLD_FLOOR and 'conflict' or 'duplicate' end
    local tombstone = tombstone_of(given.id)
    if not tombstone then return end
    if tombstone.cancelled >= given.generation then return 'cancelled' end
    if tombstone.due > 0 and tombstone.left >= given.generation then given.due = tombstone.due end
  end

  local ENDED = {[CANCELLED] = 'cancelled', [DIED] = 'dead'}

  -- A cancelled cold row is remembered at once, and may come twice in a batch: read its memory again.
  local function judge_unknown(batch, call, given)
    local remembered = batch.is_ended[given.id] and recall('r' .. given.id) or given.remembered
    if remembered and call.revives then
      given.is_revived = true
      return 'replaced'
    end
    if remembered and string.sub(remembered, 7, 14) == given.hash then
      given.due, given.has_ended, given.same_ended = number_at(remembered, 1, 6), true, remembered
      return ENDED[string.sub(remembered, 15, 15)] or 'duplicate'
    end
    if remembered and call.holds then
      given.due, given.has_ended = number_at(remembered, 1, 6), true
      return 'conflict'
    end
    return judge_cold(call, given) or 'accepted'
  end

  function judge(batch, call, given, record)
    if given.generation == 0 then given.due = math.max(given.due, NOW) end
    given.wanted = given.due
    local earlier, status = earlier_of(batch, given.id), nil
    if earlier or has_state(given.id, record) then
      status = judge_living(call, given, earlier and earlier.record or record, earlier)
    else
      status = judge_unknown(batch, call, given)
    end
    return not given.has_ended and batch[status] and refusal(call, given.wanted, given.expires) or status
  end
end
