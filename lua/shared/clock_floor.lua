-- A floor for counters that rises with the clock faster than they do: a counter that begins at it, or is
-- lifted to it, is beyond every number that was given before, also by a server or a life of the route
-- that nobody remembers. `above` is added to it.
local function clock_floor(above)
  local A_MS, SINCE_MS, MOST = 262, 1735689600000, 70368744177664  -- since 2025; 2^46: a wrong clock
  return math.min(math.max(0, NOW - SINCE_MS) * A_MS + above, MOST)
end
