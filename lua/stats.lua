#!lua flags=no-writes
-- stats.lua: the poll, and the few figures that only people and gauges want.
--
-- Returns  {poll, due in pending, oldest due ms (-1: nothing is due), journal entries, memories}
-- @include keys clock poll

local oldest = -1
for _, key in ipairs({PENDING, READY, SUSPECT}) do
  local first = first_score(key)
  if first >= 0 and first <= NOW and (oldest < 0 or first < oldest) then oldest = first end
end
return {poll(), redis.call('ZCOUNT', PENDING, '-inf', NOW), oldest,
  redis.call('XLEN', JOURNAL), redis.call('HLEN', MEMORY)}
