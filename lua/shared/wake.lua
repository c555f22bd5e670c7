-- A hint to sleeping workers that something is due earlier than they know. Losing it costs a second.
local function wake_before(due)
  local first = redis.call('ZRANGE', PENDING, 0, 0, 'WITHSCORES')[2]
  if not first or due < tonumber(first) then redis.call('PUBLISH', WAKE, due) end
end
