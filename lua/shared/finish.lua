-- The end of an envelope's life: it and its flight go, its id and hash stay as long as it asked.
local function remember_id(id, due_six, hash, remember_ms)
  if remember_ms > 0 then memorize('r' .. id, due_six .. hash, remember_ms) end
end

local function finish(id, record)
  if is_known(record) then
    remember_id(id, string.sub(record, 2, 7), string.sub(record, 32, 39), number_at(record, 14, 19))
  end
  redis.call('HDEL', ENVELOPES, id)
  redis.call('HDEL', FLIGHT, id)
end

-- What a cancel asked for while a worker held the envelope; `items` are the journal's.
local function finish_cancelled(id, f, items)
  items[#items + 1] = id
  items[#items + 1] = six(f.due) .. struct.pack('>I4', f.attempt)
  finish(id, redis.call('HGET', ENVELOPES, id))
end
