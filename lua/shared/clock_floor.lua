-- A floor for counters that rises with the clock faster than they do: a counter that begins at it, or is
-- lifted to it, is beyond every number that was given before, also by a server or a life of the route
-- that nobody remembers. `above` is added to it.
-- It rises by 262 a ms since 2025, and from KNEE, in April 2029, by a fifth of that: still more than a shard
-- takes in for long. It ends at MOST, in 2135, or where a clock is far ahead; the last quarter of a record's
-- 48 bits is then left to what is counted.
local function clock_floor(above)
  local A_MS, SINCE_MS, KNEE, MOST = 262, 1735689600000, 2 ^ 45, 3 * 2 ^ 46
  local floor = math.max(0, NOW - SINCE_MS) * A_MS
  if floor > KNEE then floor = KNEE + math.floor((floor - KNEE) / 5) end
  return math.min(floor + above, MOST)
end
