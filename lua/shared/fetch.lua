-- Records of ids, in order, as many as fit in `budget` bytes but at least one; `ids` is cut to them.
-- No record is larger than meta's `largest`, so that a read can be bounded before it is made.
local MAX_BYTES = 4194304

local function fetch(ids, budget)
  local largest = tonumber(redis.call('HGET', META, 'largest') or 1)
  local left = math.min(tonumber(budget), MAX_BYTES)
  local records = {}
  while #records < #ids do
    local count = math.min(math.floor(left / largest), #ids - #records)
    if count < 1 then
      if #records > 0 then break end
      count = 1
    end
    local chunk = redis.call('HMGET', ENVELOPES, unpack(ids, #records + 1, #records + count))
    for _, record in ipairs(chunk) do
      records[#records + 1] = record
      if record then left = left - #record end
    end
  end
  for i = #ids, #records + 1, -1 do ids[i] = nil end
  return records
end
