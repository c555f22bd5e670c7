-- A flight: the state of an envelope in flight, in one field of fixed width and its last error's text.
--   1-12    token         8 random bytes and a counter; zeros: not leased
--   13-18   due           ms: its place in ready
--   19-22   attempt       rises at every claim, never falls
--   23-24   failures      definite ones, since accept or replay
--   25-26   retries       of any cause, since accept or replay: the back-off's exponent
--   27-28   expiries      leases that expired
--   29-30   singles       leases that expired while claimed alone
--   31      unsure        1: a delivery was started and has no definite failure
--   32      cancel        1: remove it when the lease ends; 2: remember the id for as long as the record
--                         says, which a repeat raised after the claim
--   33      single        1: claimed alone
--   34      shunting      1: the token is a shunt's
--   35      reason        cause of death (bridge/duebridge/ports/publisher.py), 0: not dead
--   36-41   first failed  ms, 0: never
--   42-47   last failed   ms, 0: never
--   48-     error         class and message of the last failure, separated by a line break; then, if
--                         there is anything to say, a NUL and the tail, which 0.2.0 takes for a
--                         part of the error: it shows it, and drops it with the next error:
--                           13 digits  held since: ms of the first target failure of its streak, 0: none
--                           8 letters  tag of the target that it is set aside for; `-` throughout: none
--                           5 digits   failed tries of its dead letter
--                           the rest   class and message of the last of these
local FORMAT = '>c12I6I4I2I2I2I2BBBBBI6I6'
local ERROR_AT = 48
local NOBODY = string.rep('\0', 12)
local FRESH = string.rep('\0', ERROR_AT - 23)
local MAX_COUNT = 65535
local EXPIRED, POISON = 2, 7
local NO_TAG = string.rep('-', 8)

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
  local text = string.sub(packed, ERROR_AT)
  local nul = string.find(text, '\0', 1, true)
  f.error, f.held_since, f.tag, f.letters, f.letter_error = text, 0, NO_TAG, 0, ''
  if nul then
    f.error, f.held_since = string.sub(text, 1, nul - 1), tonumber(string.sub(text, nul + 1, nul + 13)) or 0
    f.tag, f.letters = string.sub(text, nul + 14, nul + 21), tonumber(string.sub(text, nul + 22, nul + 26)) or 0
    f.letter_error = string.sub(text, nul + 27)
  end
  return f
end

local function flight_tail(f)
  if f.held_since == 0 and f.tag == NO_TAG and f.letters == 0 then return '' end
  return '\0' .. string.format('%013.0f', f.held_since) .. f.tag
    .. string.format('%05d', math.min(f.letters, MAX_COUNT)) .. f.letter_error
end

-- The tag of the target that an envelope is set aside for; nil if it is not.
local function tag_of(packed)
  local nul = packed and string.find(packed, '\0', ERROR_AT, true)
  local tag = nul and string.sub(packed, nul + 14, nul + 21)
  if tag and tag ~= NO_TAG then return tag end
end

local function close_flight(f)
  return struct.pack(FORMAT, f.token, f.due, f.attempt, math.min(f.failures, MAX_COUNT),
    math.min(f.retries, MAX_COUNT), math.min(f.expiries, MAX_COUNT), math.min(f.singles, MAX_COUNT),
    f.unsure, f.cancel, f.single, f.shunting, f.reason, f.first_failed, f.last_failed) .. f.error .. flight_tail(f)
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

-- Whether a cancel waits for the end of the lease.
local function is_marked(packed) return packed and string.sub(packed, 32, 32) == '\1' end

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

-- The clock of `hold`: '1' starts it unless it runs, '0' ends it, '' leaves it.
local function note_hold(f, hold)
  if hold == '1' and f.held_since == 0 then f.held_since = NOW end
  if hold == '0' then f.held_since = 0 end
end

local function clear_lease(f)
  f.token, f.single, f.shunting = NOBODY, 0, 0
end

local function new_token(nonce)
  return nonce .. struct.pack('>I4', redis.call('HINCRBY', META, 'claims', 1) % 4294967296)
end
