-- What outlives an envelope or a call, each for its time: `c` answers of calls, `r` remembered ids
-- (due and hash); on a route with a cold tier `t` tombstones (generation, new due or zeros, the
-- generation up to which rows are cancelled or zeros), `d` how far a batch is demoted (rows done,
-- removed, void), `x` copies of a batch that are void.
-- A value begins with its own expiry (6 bytes); forget.lua removes what has expired.
local function memorize(name, value, keep_ms)
  local expiry = NOW + keep_ms
  redis.call('HSET', MEMORY, name, six(expiry) .. value)
  redis.call('ZADD', FORGET, expiry, name)
end

local function still_known(value)
  return value and number_at(value, 1, 6) > NOW and string.sub(value, 7)
end

local function recall(name) return still_known(redis.call('HGET', MEMORY, name)) end
