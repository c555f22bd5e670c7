-- A record: a prefix of fixed width that scripts read and write, then a blob that they never decode.
--   1       layout      1, or 2: a header is an AMQP field, which duebridge 0.2.0 cannot read. Its workers
--                       leave a layout that they do not know
--   2-7     due         ms
--   8-13    expires     ms, 0: never
--   14-19   remember    ms, 0: not at all
--   20-25   scheduled   ms, when it was accepted
--   26-31   generation  from the shard's counter
--   32-39   hash        of the content as given
--   40-     blob        begins with its codec, which is 2 or 3 for layout 2 (store/wire/record.py)
local LAYOUT, NEWEST_LAYOUT = '\1', '\2'
local PREFIX_BYTES = 39
local NEVER = '\0\0\0\0\0\0'

local function is_known(record)
  local layout = record and string.sub(record, 1, 1)
  return (layout == LAYOUT or layout == NEWEST_LAYOUT) and #record >= PREFIX_BYTES
end

-- A record that only a newer duebridge can read; an older one must not bury it.
local function is_newer(record)
  return record and #record > 0 and string.byte(record) > string.byte(NEWEST_LAYOUT)
end

-- The due instant, or `other_six` where the record cannot be read: a flight is never cut short.
local function due_or(record, other_six)
  return is_known(record) and string.sub(record, 2, 7) or other_six
end

local new_record
do
  local CODEC_AT, FIELDS_PLAIN = 9, 2  -- in a content: hash and blob
  local byte, pack = string.byte, struct.pack  -- here: looked up for each envelope

  function new_record(due, expires, remember, generation, content)
    local codec = byte(content, CODEC_AT) or 0
    local layout = codec < FIELDS_PLAIN and LAYOUT or NEWEST_LAYOUT
    return layout .. pack('>I6I6I6I6I6', due, expires, remember, NOW, generation) .. content
  end
end

local function moved_record(record, due, expires, generation)
  return string.sub(record, 1, 1) .. six(due) .. expires .. string.sub(record, 14, 25) .. six(generation)
    .. string.sub(record, 32)
end

local function has_expired(record)
  return string.sub(record, 8, 13) ~= NEVER and is_known(record) and number_at(record, 8, 13) <= NOW
end

local function next_generation(count) return redis.call('HINCRBY', META, 'generation', count) end

-- Note the largest of the records that are about to be written. An empty shard has no larger one.
local function note_largest(size)
  local known = tonumber(redis.call('HGET', META, 'largest') or 0)
  if size > known or size < known and redis.call('HLEN', ENVELOPES) == 0 then
    redis.call('HSET', META, 'largest', size)
  end
end

local MAX_BYTES = 1048576  -- reading 1 MiB takes the server 2 ms
local SINGLY = 524288
local REWRITTEN_BYTES = 262144  -- a record that is written again costs more than twice its reading

-- Return the records of ids, in order: as many as fit in `budget` bytes, but at least one; `ids` is cut
-- to them. No record is larger than meta's `largest`, so that a read is bounded before it is made. Where
-- another record is not sure to fit, each is read alone, up to SINGLY bytes, while one like the last
-- would fit: else a single large record made every call a call for one. What does not fit is left to
-- the next call. So a call reads its budget, or SINGLY bytes and one record, whichever is more.
local function fetch(ids, budget)
  local largest = tonumber(redis.call('HGET', META, 'largest') or 1)
  local allowed = math.min(tonumber(budget), MAX_BYTES)
  local records, left, last = {}, allowed, 0

  local function goes_on()
    if #records == #ids then return false end
    if #records == 0 or left >= largest then return true end
    return last <= left and allowed - left < SINGLY
  end

  while goes_on() do
    local count = math.max(1, math.min(math.floor(left / largest), #ids - #records))
    local first = #records
    local found = redis.call('HMGET', ENVELOPES, unpack(ids, first + 1, first + count))
    for i = 1, count do  -- no iterator: of every envelope that is accepted
      last = found[i] and #found[i] or 0
      left = left - last
      if left < 0 and first + i > 1 then break end
      records[first + i] = found[i]
    end
  end
  for i = #ids, #records + 1, -1 do ids[i] = nil end
  return records
end

-- Records that a call reads one at a time, not knowing how many: once it has read enough, the rest is
-- left to a later call. So it reads at most SINGLY bytes and one record.
local read_one, has_read_enough
do
  local bytes = 0
  function read_one(id)
    local record = redis.call('HGET', ENVELOPES, id)
    if record then bytes = bytes + #record end
    return record
  end

  function has_read_enough() return bytes >= SINGLY end
end
