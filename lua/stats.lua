#!lua flags=no-writes
-- stats.lua: return the poll plus figures for operators and gauges.
--
-- Returns  {poll, due now, due within 60 s, within 300 s, oldest due ms (-1: nothing is due; of what was
--          claimed before, only the first 100 of each state count), journal entries, memories, scheduled,
--          journal entries ever written, of these kept (-1: never),
--          dead whose target rejects their dead letter};
--          due counts unleased envelopes that wait for delivery now, in any state
-- @include prelude batch dead flight poll

local function due_by(instant)
  return redis.call('ZCARD', READY) + redis.call('ZCARD', SUSPECT)
    + redis.call('ZCOUNT', PENDING, '-inf', instant) + redis.call('ZCOUNT', RETRY, '-inf', instant)
end

local oldest = -1
local function note_due(due)
  if due >= 0 and due <= NOW and (oldest < 0 or due < oldest) then oldest = due end
end

-- The score of what was retried is its next attempt: the due instant is in its flight.
note_due(first_score(PENDING))
note_due(first_score(READY))
for _, key in ipairs({READY, SUSPECT, RETRY, UNACK}) do
  local ids = redis.call('ZRANGE', key, 0, 99)
  for _, flight in ipairs(hmget(FLIGHT, ids)) do
    if flight then note_due(number_at(whole_flight(flight), 13, 18)) end
  end
end
local counted = redis.call('HMGET', META, 'generation', 'journal_sequence', 'journal_kept',
  'generation_skipped', 'journal_skipped', 'journal_jumps')


-- Entries are counted without the numbers that renewals skipped.
local skipped, kept = tonumber(counted[5] or 0), tonumber(counted[3] or -1)
if kept >= 0 then
  for found, first in string.gmatch(counted[6] or '', '(%d+):(%d+)') do
    if kept < tonumber(first) then
      kept = tonumber(first) - 1 - math.max(0, tonumber(found) - kept)
    end
  end
  kept = math.max(0, kept - skipped)
end
return {poll(), due_by(NOW), due_by(NOW + 60000), due_by(NOW + 300000), oldest,
  redis.call('XLEN', JOURNAL), redis.call('HLEN', MEMORY),
  tonumber(counted[1] or 0) - tonumber(counted[4] or 0), tonumber(counted[2] or 0) - skipped, kept,
  redis.call('ZCOUNT', DEAD, string.format('%.0f', REJECTED), '(+inf')}
