-- Scores in dead beyond any time: +inf, the route has no dead-letter target yet; REJECTED, its target
-- rejects the dead letter for good.
local REJECTED = 4503599627370496  -- 2^52
