-- The journal: one entry per batch: `k` kind, `t` ms, `b` running total of bytes, `i` items (msgpack:
-- id, note, ...), and of retried and dead `d` details (msgpack: one per item), `f`, which has a 1 for
-- each item that counts as a failure, else a 0, and `m` messages of the errors (msgpack: one per item;
-- '' is the message of the item before, a space is none), absent if no item has one. Older readers
-- skip all three.
-- Its stream id is its sequence number, dense but for the jump of a `renewed` entry, which has no items
-- but `n` and `g`, the last number and generation that renew.lua found. A note begins with the due
-- instant (6 bytes); then come the attempt (4) and the reason (1) where the kind has them. A detail is
-- the next try (6 bytes, ms, 0: none) and the class of the error.
-- ARGV[2]  the cap in bytes, after a + if the call waits for replicas (shared/renewed.lua); each entry
--          drops at most 8 of the oldest while the stream is over it. Then a space and the name of the
--          person who calls, if one does: the entry's field `w`
local name_at = string.find(ARGV[2], ' ', 1, true)
local CAP = tonumber(name_at and string.sub(ARGV[2], 1, name_at - 1) or ARGV[2])
local ACTOR = name_at and string.sub(ARGV[2], name_at + 1)
local ENTRY_OVERHEAD = 48
local MOST_CLASS, MOST_MESSAGE = 64, 160  -- bytes of the class in a detail, and of a message

-- What an entry has of the failures of its items: details, whether each counts, and messages.
local function new_failures() return {details = {}, counted = {}, messages = {}, last = ' '} end

-- Add the next item, which failed with `error`: its class, a line break and its message.
local function add_failure(failures, next_try, error, counts)
  local at = #failures.details + 1
  local class_end = string.find(error, '\n', 1, true) or #error + 1
  local message = string.sub(error, class_end + 1, class_end + MOST_MESSAGE)
  if message == '' then message = ' ' end
  failures.details[at] = six(next_try) .. string.sub(error, 1, math.min(class_end - 1, MOST_CLASS))
  failures.counted[at] = counts
  failures.messages[at] = message == failures.last and '' or message
  failures.has_message = failures.has_message or message ~= ' '
  failures.last = message
end

local function trim_journal(total, cap)
  local dropped = tonumber(redis.call('HGET', META, 'journal_dropped') or 0)
  if total - dropped <= cap then return end
  local ids = {}
  for _, entry in ipairs(redis.call('XRANGE', JOURNAL, '-', '+', 'COUNT', 8)) do
    if total - dropped <= cap then break end
    ids[#ids + 1] = entry[1]
    dropped = tonumber(entry[2][6]) or dropped  -- a damaged entry has no total
  end
  redis.call('HSET', META, 'journal_dropped', dropped)
  redis.call('XDEL', JOURNAL, unpack(ids))
end

-- Append an entry of `bytes` bytes of items and details; the rest are further fields.
local function append(kind, packed, bytes, ...)
  local sequence = redis.call('HINCRBY', META, 'journal_sequence', 1)
  local total = redis.call('HINCRBY', META, 'journal_bytes', bytes + ENTRY_OVERHEAD + (ACTOR and #ACTOR or 0))
  local id = string.format('%.0f-0', sequence)
  if ACTOR then
    redis.call('XADD', JOURNAL, id, 'k', kind, 't', NOW, 'b', total, 'i', packed, 'w', ACTOR, ...)
  else
    redis.call('XADD', JOURNAL, id, 'k', kind, 't', NOW, 'b', total, 'i', packed, ...)
  end
  if total > CAP then trim_journal(total, CAP) end
end

local function journal(kind, items, failures)
  if #items == 0 then return end
  local packed = cmsgpack.pack(items)
  if not failures then return append(kind, packed, #packed) end
  local detailed, counted = cmsgpack.pack(failures.details), table.concat(failures.counted)
  local bytes = #packed + #detailed + #counted
  if not failures.has_message then return append(kind, packed, bytes, 'd', detailed, 'f', counted) end
  local messages = cmsgpack.pack(failures.messages)
  append(kind, packed, bytes + #messages, 'd', detailed, 'f', counted, 'm', messages)
end
