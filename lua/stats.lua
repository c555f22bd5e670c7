#!lua flags=no-writes
-- stats.lua: return the poll plus figures for operators and gauges.
--
-- Returns  {poll, due now, due within 60 s, within 300 s, oldest due ms (-1: nothing is due), journal
--          entries, memories, scheduled, newest journal entry, newest that was kept (-1: never)};
--          due counts unleased envelopes that wait for delivery now, in any state
-- @include prelude poll

local function due_by(instant)
  return redis.call('ZCARD', READY) + redis.call('ZCARD', SUSPECT)
    + redis.call('ZCOUNT', PENDING, '-inf', instant) + redis.call('ZCOUNT', RETRY, '-inf', instant)
end

local oldest = -1
for _, key in ipairs({PENDING, READY, SUSPECT, RETRY}) do
  local first = first_score(key)
  if first >= 0 and first <= NOW and (oldest < 0 or first < oldest) then oldest = first end
end
local counted = redis.call('HMGET', META, 'generation', 'journal_sequence', 'journal_kept')
return {poll(), due_by(NOW), due_by(NOW + 60000), due_by(NOW + 300000), oldest,
  redis.call('XLEN', JOURNAL), redis.call('HLEN', MEMORY),
  tonumber(counted[1] or 0), tonumber(counted[2] or 0), tonumber(counted[3] or -1)}
