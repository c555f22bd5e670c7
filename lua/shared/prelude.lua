-- The keys, the clock and the integers of every script.
-- ARGV[1]  '' for the server's time; only tests pass ms; [2] and [3]: shared/journal.lua, shared/life.lua

-- The keys of one shard. Every script receives all of them, in this order, all with one hash tag.
local PENDING, READY, SUSPECT, UNACK, RETRY, DEAD =
  KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6]
local ENVELOPES, FLIGHT, JOURNAL, META = KEYS[7], KEYS[8], KEYS[9], KEYS[10]
local MEMORY, FORGET, WAKE = KEYS[11], KEYS[12], KEYS[13]

-- The server's clock in ms. NOW is rounded down: an instant is due when it is <= NOW.
-- NOW_UP is rounded up: a delay counts from it, so that nothing is early by a fraction.
local NOW, NOW_UP
if ARGV[1] ~= '' then
  NOW = tonumber(ARGV[1])
  NOW_UP = NOW
else
  local time = redis.call('TIME')
  NOW = time[1] * 1000 + math.floor(time[2] / 1000)
  NOW_UP = time[1] * 1000 + math.ceil(time[2] / 1000)
end

-- Fixed-width big-endian integers. Compare them as numbers only: Lua orders text by the server's locale.
local function six(number) return struct.pack('>I6', number) end
local number_at
do
  local formats = {'>I1', '>I2', '>I3', '>I4', '>I5', '>I6', '>I7', '>I8'}  -- building one is slow
  function number_at(bytes, first, last)
    return (struct.unpack(formats[last - first + 1], bytes, first))
  end
end

-- Hint to sleeping workers that something is due earlier than they know. A lost hint costs a second.
local function wake_before(due)
  local first = redis.call('ZRANGE', PENDING, 0, 0, 'WITHSCORES')[2]
  if not first or due < tonumber(first) then redis.call('PUBLISH', WAKE, due) end
end
