-- Beside: what replaces an id that is on its way is stored under an id of its own, beside it. memory's
-- `b`ID names these (msgpack, the newest first) until a week after the newest is due: by that name later
-- replacements of the id reach the newest, and cancels all of them.
local BESIDE_MS = 7 * 24 * 3600 * 1000
local MOST_BESIDE = 32

-- Return by row the id that each is or replaces (ARGV, msgpack: of each row the id, '' for its own).
local function read_besides(packed, ids)
  if (packed or '') == '' then return ids end
  local given, keys = cmsgpack.unpack(packed), {}
  for i, id in ipairs(ids) do keys[i] = given[i] and given[i] ~= '' and given[i] or id end
  return keys
end

-- Return what is stored beside each of the ids, by id.
local function recall_besides(call, ids, keys, packed)
  local found = {}
  if not call.replace and (packed or '') == '' then return found end
  for i, value in ipairs(read_memory('b', keys)) do
    local besides = unexpired(value)
    found[keys[i]] = besides and cmsgpack.unpack(besides) or nil
  end
  return found
end

-- Judge an envelope in the place of what waits beside its id; nil if that cannot be replaced.
local function judge_instead(batch, call, given, beside, record)
  local own, shown, ended = given.id, given.due, given.has_ended
  given.id, given.due = beside, given.wanted or given.due
  given.leaves, given.is_unsure, given.has_ended = nil, nil, nil
  local displacing = {max_delay = call.max_delay, replace = true, revives = false}
  local status = judge(batch, displacing, given, record)
  if status == 'replaced' or status == 'duplicate' then batch.displaced[given.key] = nil end
  if status ~= 'in_flight' and status ~= 'conflict' then return status end
  given.id, given.due, given.has_ended = own, shown, ended
  given.leaves, given.is_unsure = nil, nil
end

-- Judge an envelope by its id and by what is stored beside that. The same content as the id has is news
-- only from a later place: else it may be what came before, delivered again.
local function judge_beside(batch, call, given, record, place)
  local besides = batch.besides[given.key]
  if not besides then return judge(batch, call, given, record) end
  local newest = besides[1] ~= given.id and besides[1]
  local living = newest and ((earlier_of(batch, newest) or {}).record or read_one(newest))
  if given.key ~= given.id then
    return living and judge_instead(batch, call, given, newest, living)
      or judge(batch, call, given, record)
  end
  local status = judge(batch, call, given, record)
  local is_news = status == 'duplicate' and place and not given.has_ended
  if status == 'accepted' or status == 'replaced' or is_news and not may_be_out(given) then
    batch.displaced[given.key] = true
  elseif living and (status == 'in_flight' or is_news) then
    return judge_instead(batch, call, given, newest, living) or status
  end
  return status
end

-- Note what was stored beside an id, for those that come later. Earlier ones may still be on their way,
-- or in the cold tier.
local function note_beside(batch, given, status)
  if given.key == given.id or status ~= 'accepted' and status ~= 'replaced' then return end
  local besides = {given.id}
  for _, id in ipairs(batch.besides[given.key] or {}) do
    local is_there = batch.seen[id] or redis.call('HEXISTS', ENVELOPES, id) == 1 or has_cold_tier()
    if id ~= given.id and is_there and #besides < MOST_BESIDE then besides[#besides + 1] = id end
  end
  batch.besides[given.key], batch.new_besides[given.key] = besides, given.due
end

-- Cancel what waits beside an id that has newer content itself; return what is on its way, or dead. It is
-- of this life of the route: what is not here is cold only if a job has run, and its own schedule ended the
-- copies of an earlier life.
local function displace_all(besides, items, call)
  local left = {}
  for _, id in ipairs(besides) do
    local given = {id = id}
    if may_be_out(given) or given.leaves == DEAD then
      left[#left + 1] = id
    elseif given.leaves and has_read_enough() then
      end_cold_copies({id}, next_generation(0), call.note_ms, call.has_cold_tier)
      finish_later(id, given.leaves)
    elseif given.leaves then
      local record, flight = read_one(id), redis.call('HGET', FLIGHT, id)
      items[#items + 1] = id
      items[#items + 1] = flight and flight_note(flight) or due_or(record, six(NOW)) .. '\0\0\0\0'
      end_cold_copies({id}, next_generation(0), call.note_ms, call.has_cold_tier)
      finish(id, record, CANCELLED)
      redis.call('ZREM', given.leaves, id)
    elseif may_be_cold(id) then
      cancel_cold(id, call.max_delay)
    end
  end
  return left
end

local function write_besides(batch, call)
  local items = {}
  for key in pairs(batch.displaced) do
    local left = displace_all(batch.besides[key], items, call)
    batch.besides[key], batch.new_besides[key] = left, #left > 0 and NOW or nil
    redis.call('HDEL', MEMORY, 'b' .. key)
    redis.call('ZREM', FORGET, 'b' .. key)
  end
  journal('cancelled', items)
  for key, due in pairs(batch.new_besides) do
    memorize('b' .. key, cmsgpack.pack(batch.besides[key]), due - NOW + BESIDE_MS)
  end
end
