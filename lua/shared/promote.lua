-- Promotion: pending | retry -> ready, earliest first; a retry whose lease ran out twice -> suspect.
local function promote_from(key, count)
  local due = redis.call('ZRANGE', key, '-inf', NOW, 'BYSCORE', 'LIMIT', 0, count, 'WITHSCORES')
  local ids, ready, suspect = {}, {}, {}
  for i = 1, #due, 2 do ids[#ids + 1] = due[i] end
  if #ids == 0 then return 0 end
  local flights = key == RETRY and hmget(FLIGHT, ids) or {}
  for i, id in ipairs(ids) do
    local scores = is_suspect(flights[i]) and suspect or ready
    scores[#scores + 1], scores[#scores + 2] = due[2 * i], id
  end
  zadd(READY, ready)
  zadd(SUSPECT, suspect)
  redis.call('ZREMRANGEBYRANK', key, 0, #ids - 1)
  return #ids
end

-- Promote at most `most`, and none beyond a full ready; return the count. Retries get at most half
-- while there is fresh work, so that neither starves the other.
local function promote(most, ready_full)
  local room = math.min(limited(most), tonumber(ready_full) - redis.call('ZCARD', READY))
  if room <= 0 then return 0 end
  local promoted = promote_from(RETRY, math.ceil(room / 2))
  if promoted < room then promoted = promoted + promote_from(PENDING, room - promoted) end
  return promoted
end
