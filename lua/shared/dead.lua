-- Scores in dead beyond any time: +inf, the route has no dead-letter target yet; REJECTED and up, its
-- target rejects the dead letter for good. Each readdress raises the score of later rejections by one,
-- so that it ends although the new target rejects letters too.
local REJECTED = 4503599627370496  -- 2^52
local function rejected_score()
  return string.format('%.0f', REJECTED + tonumber(redis.call('HGET', META, 'readdressed') or 0))
end
