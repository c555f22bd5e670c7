-- The state an id is in: its name, its key and its score; or nothing.
local function whereabouts(id)
  local places = {{'pending', PENDING}, {'ready', READY}, {'ready', SUSPECT}, {'unack', UNACK},
    {'retry', RETRY}, {'dead', DEAD}}
  for _, place in ipairs(places) do
    local score = redis.call('ZSCORE', place[2], id)
    if score then return place[1], place[2], tonumber(score) end
  end
end

-- A shunt holds it: its dead letter may be on the way at this moment.
local function is_being_shunted(flight, score)
  return flight and string.sub(flight, 34, 34) == '\1' and score > NOW
end
