-- Leasing: claim.lua and probe.lua lease envelopes, bury expired ones and drop ids without a record.
local function new_leases(token, deadline, dead_score)
  return {token = token, deadline = deadline, dead_score = dead_score, now_six = six(NOW), ids = {},
    records = {}, flights = {}, packed = {}, unack = {}, dead = {}, expired = {}, ghosts = {}}
end

local function lease(leases, id, record, flight, single)
  local due_six = due_or(record, leases.now_six)
  local leased = leases.token .. due_six .. '\0\0\0\1' .. FRESH
  if flight or single then
    local f = open_flight(flight or fresh_flight(due_six))
    f.token, f.attempt, f.single, f.tag = leases.token, f.attempt + 1, single and 1 or 0, NO_TAG
    -- A reschedule of 0.2.0 keeps the clock of `hold`: one from before the due instant is over.
    if f.held_since < f.due then f.held_since = 0 end
    leased = close_flight(f)
  end
  local n = #leases.ids + 1
  leases.ids[n], leases.records[n], leases.flights[n] = id, record, (flight or single) and leased or ''
  local packed, unack = leases.packed, leases.unack
  packed[#packed + 1], packed[#packed + 2] = id, leased
  unack[#unack + 1], unack[#unack + 2] = leases.deadline, id
end

local function expire(leases, id, record, flight)
  local f = open_flight(flight or fresh_flight(string.sub(record, 2, 7)))
  f.reason, f.tag, f.held_since = EXPIRED, NO_TAG, 0
  local packed, dead, expired = leases.packed, leases.dead, leases.expired
  packed[#packed + 1], packed[#packed + 2] = id, close_flight(f)
  dead[#dead + 1], dead[#dead + 2] = leases.dead_score, id
  expired[#expired + 1], expired[#expired + 2] = id, flight_note(packed[#packed]) .. '\2'
end

-- Lease one envelope, or bury it if it has expired; an id without a record is corrupt and dropped.
local function take(leases, id, record, flight, single)
  if record and has_expired(record) then
    expire(leases, id, record, flight)
  elseif record then
    lease(leases, id, record, flight, single)
  else
    leases.ghosts[#leases.ghosts + 1] = id
  end
end

-- Write everything; the caller then removes the ids from where they were.
local function write_leases(leases)
  hset_as_table(FLIGHT, leases.packed)
  zadd(UNACK, leases.unack)
  zadd(DEAD, leases.dead)
  journal('expired', leases.expired)
  hdel(FLIGHT, leases.ghosts)
end

-- Poll, token, ids, records, flights, expired.
local function leases_reply(leases)
  return {poll(), leases.token, leases.ids, leases.records, leases.flights, #leases.expired / 2}
end
