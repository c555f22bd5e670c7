-- A flight: the state of an envelope in flight, in one field of fixed width and its last error's text.
--   1-12    token         8 random bytes and a counter; zeros: not leased
--   13-18   due           ms: its place in ready
--   19-22   attempt       rises at every claim, never falls
--   23-24   failures      definite ones, since accept or replay
--   25-26   retries       of any cause, since accept or replay: the back-off's exponent
--   27-28   expiries      leases that expired
--   29-30   singles       leases that expired while claimed alone
--   31      unsure        1: a delivery was started and has no definite failure
--   32      cancel        1: remove it when the lease ends
--   33      single        1: claimed alone
--   34      shunting      1: the token is a shunt's
--   35      reason        cause of death (bridge/duebridge/ports/publisher.py), 0: not dead
--   36-41   first failed  ms, 0: never
--   42-47   last failed   ms, 0: never
--   48-     error         class and message of the last failure, separated by a line break
local FORMAT = '>c12I6I4I2I2I2I2BBBBBI6I6'
local ERROR_AT = 48
local NOBODY = string.rep('\0', 12)
local FRESH = string.rep('\0', ERROR_AT - 23)
local MAX_COUNT = 65535
local EXPIRED, POISON = 2, 7

-- A truncated flight is corrupt: treat it as unheld and unsure, so that it cannot block the batch.
local function whole_flight(packed)
  if #packed >= ERROR_AT - 1 then return packed end
  return NOBODY .. six(NOW) .. '\0\0\0\0' .. string.rep('\0', 8) .. '\1' .. string.rep('\0', 16)
end

local function open_flight(packed)
  packed = whole_flight(packed)
  local f = {}
  f.token, f.due, f.attempt, f.failures, f.retries, f.expiries, f.singles, f.unsure, f.cancel,
    f.single, f.shunting, f.reason, f.first_failed, f.last_failed = struct.unpack(FORMAT, packed)
  f.error = string.sub(packed, ERROR_AT)
  return f
end

local function close_flight(f)
  return struct.pack(FORMAT, f.token, f.due, f.attempt, math.min(f.failures, MAX_COUNT),
    math.min(f.retries, MAX_COUNT), math.min(f.expiries, MAX_COUNT), math.min(f.singles, MAX_COUNT),
    f.unsure, f.cancel, f.single, f.shunting, f.reason, f.first_failed, f.last_failed) .. f.error
end

-- The bytes of a flight that was never claimed.
local function fresh_flight(due_six) return NOBODY .. due_six .. '\0\0\0\0' .. FRESH end

-- Whether the token holds the flight, given out by a claim or (byte 34) by a shunt.
local BY_CLAIM, BY_SHUNT = '\0', '\1'
local function is_held_by(packed, token, by)
  return packed and token ~= NOBODY and string.sub(packed, 1, 12) == token
    and string.sub(packed, 34, 34) == by
end

-- An envelope with this many expiries is claimed alone.
local SUSPECT_FROM = 2
local function is_suspect(packed)
  return packed and number_at(whole_flight(packed), 27, 28) >= SUSPECT_FROM
end

local function is_unsure(packed) return packed and string.sub(whole_flight(packed), 31, 31) == '\1' end

-- Return the journal note: due and attempt of the flight.
local function flight_note(packed) return string.sub(whole_flight(packed), 13, 22) end

local function note_failure(f, counts, unsure, message)
  if counts == '1' then f.failures = f.failures + 1 end
  if unsure == '1' then f.unsure = 1 end
  if message ~= '' then
    if f.first_failed == 0 then f.first_failed = NOW end
    f.last_failed = NOW
    f.error = message
  end
end

local function clear_lease(f)
  f.token, f.single, f.shunting = NOBODY, 0, 0
end

local function new_token(nonce)
  return nonce .. struct.pack('>I4', redis.call('HINCRBY', META, 'claims', 1) % 4294967296)
end
