#!lua flags=no-writes
-- histogram.lua: count what falls due between instants, without looking at an envelope.
--
-- ARGV[4]  number of instants, at most 501, rising; then the instants, ms
-- Returns  {now, pending by due, retry by next try}: of each instant but the last, how many have it or a
--          later one, but none after it
-- @include prelude

local MOST_EDGES = 501
local count = tonumber(ARGV[4])
if count > MOST_EDGES then return redis.error_reply('LIMIT at most 501 instants a call') end

-- Two look-ups an instant and index, whatever the index holds.
local function counts(key)
  local found, below = {}, nil
  for i = 1, count do
    local here = redis.call('ZCOUNT', key, '-inf', '(' .. ARGV[4 + i])
    if below then found[#found + 1] = here - below end
    below = here
  end
  return found
end

return {NOW, counts(PENDING), counts(RETRY)}
