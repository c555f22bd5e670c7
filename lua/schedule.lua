#!lua
-- schedule.lua: accept envelopes; each waits in pending until it is due.
--
-- Transition  (unknown) -> pending; replaced: pending | ready | retry | dead -> pending
-- ARGV[4]  longest allowed delay, ms
-- ARGV[5]  replace: different content replaces what has the id, and a remembered id begins a new
--          life; replace_living: the former only; reopen: the latter only; refuse: neither; hold:
--          neither, and a remembered id with different content is a conflict; once: neither, as nothing
--          else ever has the id. An id that was cancelled while it was cold answers cancelled to `once`,
--          and to `hold` for its remember time. A duplicate raises how long the id will be remembered,
--          and with `hold` that of one that has ended; never lowers it
-- ARGV[6]  call id, so that a repeated call changes nothing and returns the same answer; ARGV[7]
--          its lifetime, ms; '' for a call that is never repeated
-- ARGV[8]  number of envelopes, then for each: id, head (shared/judge.lua), hash and blob ('': the
--          client refused it); then their places in the logs that they came from, '' for none
--          (shared/places.lua), and the ids beside which they are stored, '' for none
--          (shared/beside.lua); then the token of hydrate's lease of the cold tier, '' for none: its rows
--          are refused once another job has the lease; then more than 0 on a route with a cold tier,
--          else 0
-- Returns  {now, status, due ms, status, due ms, ...}; a refused envelope changes nothing. What has
--          the ids may exceed the byte limit: the last envelopes are then left to the next call
-- @include prelude master life renewed batch record flight journal memory filter cold find_state places judge beside judge_placed accept

local call = {max_delay = tonumber(ARGV[4]),
  replace = ARGV[5] == 'replace' or ARGV[5] == 'replace_living',
  revives = ARGV[5] == 'replace' or ARGV[5] == 'reopen', holds = ARGV[5] == 'hold'}
local call_id, keep_ms, count = ARGV[6], tonumber(ARGV[7]), tonumber(ARGV[8])
local FIRST, WIDTH = 9, 3
local lease = ARGV[FIRST + WIDTH * count + 2]
if has_lost_cold_lease(lease) then return refuse_without_lease() end
if count > MAX_BATCH then return redis.error_reply('LIMIT at most 1000 envelopes a call') end
call.has_cold_tier = has_cold_tier() or tonumber(ARGV[FIRST + WIDTH * count + 3] or 0) > 0
call.note_ms = note_ms(call.max_delay)
call.is_once = ARGV[5] == 'once' and call.has_cold_tier
call.holds_cold = call.holds and call.has_cold_tier
call.is_bound = call.is_once or call.holds_cold

local before = call_id ~= '' and recall('c' .. call_id)
if before then return cmsgpack.unpack(before) end

local ids = first_fields(FIRST, WIDTH, count)
local records = fetch(ids, REWRITTEN_BYTES)
local remembered = read_memory('r', ids)
if call.has_cold_tier then read_tombstones(bound_ids(FIRST, WIDTH, ids, call)) end
local places, marks = read_places(ARGV[FIRST + WIDTH * count])
local packed = ARGV[FIRST + WIDTH * count + 1]
local keys = read_besides(packed, ids)
local batch = new_batch(#ids)
batch.besides = recall_besides(call, ids, keys, packed)

local function given_at(i)
  local at = FIRST + (i - 1) * WIDTH
  local due, expires, remember, generation = read_head(ARGV[at + 1])
  local content = ARGV[at + 2]
  return {id = ids[i], key = keys[i], due = due, expires = expires, remember = remember,
    generation = generation, content = content, hash = string.sub(content, 1, 8),
    remembered = unexpired(remembered[i])}
end

local function judge_at(i)
  local given = given_at(i)
  local status = judge_placed(batch, call, given, records[i], places[i])
  answer(batch, status, given)
  if given.same_living or given.same_ended then remember_longer(batch, call, given, status) end
  note_beside(batch, given, status)
end

-- Accept an envelope that nothing in this shard has met, as most are, without the facts that judge gathers
-- of each. Return false, having done nothing, where judge has to decide.
local accept_at
do
  local ARGV, besides, seen, is_ended = ARGV, batch.besides, batch.seen, batch.is_ended

  function accept_at(i)
    local id, place, at = ids[i], places[i], FIRST + (i - 1) * WIDTH
    local is_met = records[i] or remembered[i] or keys[i] ~= id or besides[id] or seen[id]
      or is_ended[id] or call.is_bound and tombstone_of(id)
      or place and (is_passed(place) or place.open)
    local content = ARGV[at + 2]
    if is_met or content == '' then return false end
    local due, expires, remember, generation = read_head(ARGV[at + 1])
    if due < NOW then due = NOW end
    if generation > 0 or refusal(call, due, expires) then return false end
    accept_new(batch, id, due, expires, remember, content)
    if place then take_in(place, id, true, call.replace) end
    return true
  end
end

for i = 1, #ids do
  if i > 1 and has_read_enough() then break end
  if not accept_at(i) then judge_at(i) end
end

return_generations(batch)
write_batch(batch, call)
write_besides(batch, call)
write_marks(marks)
if call_id ~= '' then memorize('c' .. call_id, cmsgpack.pack(batch.reply), keep_ms) end
return batch.reply
