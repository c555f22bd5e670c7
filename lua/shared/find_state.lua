-- Return the state of an id as its name, key and score; nil if the id is unknown.
local function find_state(id)
  local states = {{'pending', PENDING}, {'ready', READY}, {'ready', SUSPECT}, {'unack', UNACK},
    {'retry', RETRY}, {'dead', DEAD}}
  for _, state in ipairs(states) do
    local score = redis.call('ZSCORE', state[2], id)
    if score then return state[1], state[2], tonumber(score) end
  end
end

-- Whether an id whose record this is has a state. A user who was denied the writing of the index has left
-- the record alone: it is void, since its call was answered with an error, and is called again.
local function has_state(id, record) return record and find_state(id) ~= nil end

-- Whether a shunt holds the lease: its dead letter may be in flight.
local function is_being_shunted(flight, score)
  return flight and string.sub(flight, 34, 34) == '\1' and score > NOW
end
