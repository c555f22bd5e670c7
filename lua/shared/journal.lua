-- The journal: one entry per batch: `k` kind, `t` ms, `b` running total of bytes, `i` items (msgpack:
-- id, note, ...). Its stream id is its dense sequence number. A note begins with the due instant (6
-- bytes); then come the attempt (4) and the reason (1) where the kind has them.
-- ARGV[2]  the cap in bytes; each entry drops at most 8 of the oldest while the stream is over it
local ENTRY_OVERHEAD = 48

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

local function journal(kind, items)
  if #items == 0 then return end
  local packed = cmsgpack.pack(items)
  local sequence = redis.call('HINCRBY', META, 'journal_sequence', 1)
  local total = redis.call('HINCRBY', META, 'journal_bytes', #packed + ENTRY_OVERHEAD)
  redis.call('XADD', JOURNAL, sequence .. '-0', 'k', kind, 't', NOW, 'b', total, 'i', packed)
  if total > tonumber(ARGV[2]) then trim_journal(total, tonumber(ARGV[2])) end
end
