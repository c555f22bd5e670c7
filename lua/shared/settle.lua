-- Settling: changes envelopes that the token still holds; ids with a lost lease are stale, unchanged.

-- Call `change` with the id, flight and place of every id that the token holds; return the stale ids.
-- `token` is one token for all ids, or one per id, concatenated.
local function settle(ids, flights, token, holder, change)
  local stale, is_joined = {}, #token == 12 * #ids
  for i, id in ipairs(ids) do
    local own = is_joined and string.sub(token, 12 * i - 11, 12 * i) or token
    if is_held_by(flights[i], own, holder) then
      change(id, flights[i], i)
    else
      stale[#stale + 1] = id
    end
  end
  return stale
end

-- Settle claimed envelopes: one that was cancelled meanwhile ends here, or in the next reclaim if this
-- call has read enough records; `change` gets the id, open flight and place of every other, and returns what its journal note has beyond the flight's, if any,
-- its next try, '1' if it counts as a failure, and its error. `stale` and `marked` are the ids of lost
-- leases and of cancelled envelopes: to all others the call has done what it was asked.
local function settle_claim(ids, token, change)
  local settled = {leaving = {}, flights = {}, items = {}, failures = new_failures(), cancelled = {},
    marked = {}}
  local leaving, packed, items = settled.leaving, settled.flights, settled.items
  settled.stale = settle(ids, hmget(FLIGHT, ids), token, BY_CLAIM, function(id, flight, i)
    local f = open_flight(flight)
    if f.cancel == 1 then settled.marked[#settled.marked + 1] = id end
    if f.cancel == 1 and has_read_enough() then return redis.call('ZADD', UNACK, NOW, id) end
    leaving[#leaving + 1] = id
    if f.cancel == 1 then return finish_cancelled(id, f, settled.cancelled) end
    local note, next_try, counts, error = change(id, f, i)
    clear_lease(f)
    packed[#packed + 1], packed[#packed + 2] = id, close_flight(f)
    if note then
      items[#items + 1], items[#items + 2] = id, flight_note(packed[#packed]) .. note
      add_failure(settled.failures, next_try, error, counts)
    end
  end)
  return settled
end

-- Remove settled envelopes from unack after their new state is written.
local function leave_unack(settled)
  journal('cancelled', settled.cancelled)
  zrem(UNACK, settled.leaving)
end
