-- Beside: what replaces an id that is on its way is stored under an id of its own, beside it. memory's
-- `b`ID names the newest of these, until a week after it is due: later replacements and cancels of the
-- id reach it by that name.
local BESIDE_MS = 7 * 24 * 3600 * 1000

-- Return by row the id that each is or replaces (ARGV, msgpack: of each row the id, '' for its own).
local function read_besides(packed, ids)
  local given = (packed or '') ~= '' and cmsgpack.unpack(packed) or {}
  local keys = {}
  for i, id in ipairs(ids) do keys[i] = given[i] and given[i] ~= '' and given[i] or id end
  return keys
end

-- Return what is stored beside each of the ids, by id.
local function recall_besides(call, ids, keys, packed)
  local found = {}
  if not call.replace and (packed or '') == '' or redis.call('HLEN', MEMORY) == 0 then return found end
  local names = {}
  for i = 1, #ids do names[i] = 'b' .. keys[i] end
  for i, value in ipairs(hmget(MEMORY, names)) do found[keys[i]] = unexpired(value) or nil end
  return found
end

-- Judge an envelope in the place of what waits beside its id; nil if that cannot be replaced.
local function judge_instead(batch, call, given, beside, record)
  local own, shown, ended = given.id, given.due, given.has_ended
  given.id, given.due = beside, given.wanted or given.due
  given.leaves, given.is_unsure, given.has_ended = nil, nil, nil
  local displacing = {max_delay = call.max_delay, replace = true, revives = false}
  local status = judge(batch, displacing, given, record)
  if status ~= 'in_flight' and status ~= 'conflict' then return status end
  given.id, given.due, given.has_ended = own, shown, ended
  given.leaves, given.is_unsure = nil, nil
end

-- Judge an envelope by its id and by what is stored beside that. The same content as the id has is news
-- only from a later place: else it may be what came before, delivered again.
local function judge_beside(batch, call, given, record, place)
  local beside = batch.besides[given.key]
  if beside == given.id then beside = nil end
  local living = beside and (batch.seen[beside] and batch.seen[beside].record
    or redis.call('HGET', ENVELOPES, beside))
  if not living then
    local status = judge(batch, call, given, record)
    local is_stored = status == 'accepted' or status == 'replaced'
    if beside and is_stored then batch.displaced[beside] = given.key end
    return status
  end
  if given.key ~= given.id then
    return judge_instead(batch, call, given, beside, living) or judge(batch, call, given, record)
  end
  local status = judge(batch, call, given, record)
  local is_news = status == 'duplicate' and place and not given.has_ended
  if status == 'accepted' or status == 'replaced' or is_news and not may_be_out(given) then
    batch.displaced[beside] = given.key
  elseif status == 'in_flight' or is_news then
    return judge_instead(batch, call, given, beside, living) or status
  end
  return status
end

-- Note what was stored beside an id, for those that come later.
local function note_beside(batch, given, status)
  if given.key == given.id or status ~= 'accepted' then return end
  batch.besides[given.key] = given.id
  batch.new_besides[given.key] = given
end

-- Cancel what waits beside an id that has newer content itself, also where the cold tier may have it.
local function displace(batch, keep_ms)
  local items = {}
  for beside, key in pairs(batch.displaced) do
    local given = {id = beside}
    local is_out = may_be_out(given)
    if not given.leaves then
      if redis.call('HEXISTS', META, 'hydrated_until') == 1 then
        local generation = six(next_generation(0))
        memorize('t' .. beside, generation .. NEVER .. generation, keep_ms)
      end
    elseif not is_out and given.leaves ~= DEAD then
      local record, flight = redis.call('HGET', ENVELOPES, beside), redis.call('HGET', FLIGHT, beside)
      items[#items + 1] = beside
      items[#items + 1] = flight and flight_note(flight) or due_or(record, six(NOW)) .. '\0\0\0\0'
      finish(beside, record, CANCELLED)
      redis.call('ZREM', given.leaves, beside)
    end
    redis.call('HDEL', MEMORY, 'b' .. key)
    redis.call('ZREM', FORGET, 'b' .. key)
  end
  journal('cancelled', items)
end

local function write_besides(batch, call)
  displace(batch, call.max_delay)
  for key, given in pairs(batch.new_besides) do
    memorize('b' .. key, given.id, given.due - NOW + BESIDE_MS)
  end
end
