-- Decides by its place first what schedule.lua answers for one envelope; writes nothing but marks.

local judge_placed
do
  local NOT_STORED = {conflict = true, in_flight = true, too_far = true, expires_before_due = true}

  -- The place was taken in before: nothing is asked of what has the id now.
  local function judge_passed(batch, given, record)
    local earlier = earlier_of(batch, given.id)
    local living = earlier and earlier.record or record
    given.due = is_known(living) and number_at(living, 2, 7) or 0
    return 'duplicate'
  end

  -- The client refused the message: nothing is stored, and its place stays open for one that takes it.
  local function judge_refused(batch, given, record, place)
    if place and is_passed(place) then return judge_passed(batch, given, record) end
    if place then take_in(place, given.key, false) end
    return 'refused'
  end

  -- Judge an envelope by its place, if it has one, then by its id.
  function judge_placed(batch, call, given, record, place)
    if given.content == '' then return judge_refused(batch, given, record, place) end
    if not place then return judge_beside(batch, call, given, record) end
    if is_passed(place) then return judge_passed(batch, given, record) end
    if is_superseded(place) then
      given.wanted = math.max(given.due, NOW)
      return refusal(call, given.wanted, given.expires) or judge_passed(batch, given, record)
    end
    given.is_placed = true
    local replaces = call.replace or given.key ~= given.id
    local status = judge_beside(batch, call, given, record, place)
    take_in(place, given.key, not NOT_STORED[status], replaces)
    return status
  end
end
