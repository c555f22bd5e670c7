-- The poll: tells a worker what to do next and how long it may sleep (duebridge.store.wire.poll): now, six
-- counts, five first scores (-1: none), first memory to expire, the instant before which nothing due is
-- still in the cold tier (-1: the tier was never used).
local function first_score(key)
  local first = redis.call('ZRANGE', key, 0, 0, 'WITHSCORES')[2]
  if not first or tonumber(first) >= 4503599627370496 then return -1 end  -- shared/dead.lua
  return math.max(tonumber(first), 0)  -- a negative score is corrupt; treat it as due
end

local function poll()
  return {
    NOW,
    redis.call('ZCARD', PENDING), redis.call('ZCARD', READY), redis.call('ZCARD', SUSPECT),
    redis.call('ZCARD', UNACK), redis.call('ZCARD', RETRY), redis.call('ZCARD', DEAD),
    first_score(PENDING), first_score(SUSPECT), first_score(UNACK), first_score(RETRY),
    first_score(DEAD),
    first_score(FORGET),
    tonumber(redis.call('HGET', META, 'hydrated_until') or -1),
  }
end
