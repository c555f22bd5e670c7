-- A record: a prefix of fixed width that scripts read and write, then a blob that they never decode.
--   1       layout      this file knows layout 1
--   2-7     due         ms
--   8-13    expires     ms, 0: never
--   14-19   remember    ms, 0: not at all
--   20-25   scheduled   ms, when it was accepted
--   26-31   generation  from the shard's counter
--   32-39   hash        of the content as given
--   40-     blob
local LAYOUT = '\1'
local PREFIX_BYTES = 39
local NEVER = '\0\0\0\0\0\0'

local function is_known(record)
  return record and string.sub(record, 1, 1) == LAYOUT and #record >= PREFIX_BYTES
end

-- A record that only a newer duebridge can read; an older one must not bury it.
local function is_newer(record)
  return record and #record > 0 and string.byte(record) > string.byte(LAYOUT)
end

-- The due instant, or `other_six` where the record cannot be read: a flight is never cut short.
local function due_or(record, other_six)
  return is_known(record) and string.sub(record, 2, 7) or other_six
end

local function new_record(due, expires, remember, generation, hash, blob)
  return LAYOUT .. struct.pack('>I6I6I6I6I6', due, expires, remember, NOW, generation) .. hash .. blob
end

local function moved_record(record, due, expires, generation)
  return LAYOUT .. six(due) .. expires .. string.sub(record, 14, 25) .. six(generation)
    .. string.sub(record, 32)
end

local function has_expired(record)
  return string.sub(record, 8, 13) ~= NEVER and is_known(record) and number_at(record, 8, 13) <= NOW
end

local function next_generation(count) return redis.call('HINCRBY', META, 'generation', count) end

-- Return the records of ids, in order: as many as fit in `budget` bytes, but at least one; `ids` is cut
-- to them. No record is larger than meta's `largest`, so that a read is bounded before it is made.
local MAX_BYTES = 1048576  -- reading 1 MiB takes the server 2 ms

local function fetch(ids, budget)
  local largest = tonumber(redis.call('HGET', META, 'largest') or 1)
  local left = math.min(tonumber(budget), MAX_BYTES)
  local records = {}
  while #records < #ids do
    local count = math.min(math.floor(left / largest), #ids - #records)
    if count < 1 then
      if #records > 0 then break end
      count = 1
    end
    local chunk = redis.call('HMGET', ENVELOPES, unpack(ids, #records + 1, #records + count))
    for _, record in ipairs(chunk) do
      records[#records + 1] = record
      if record then left = left - #record end
    end
  end
  for i = #ids, #records + 1, -1 do ids[i] = nil end
  return records
end
