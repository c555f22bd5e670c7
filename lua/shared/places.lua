-- Place marks: how far this shard has taken in each log that feeds it (a partition, a stream), so that a
-- message that its broker delivers again is known without remembering its id.
--
-- meta's field `p:`LOG is the mark, EPOCH:OFFSET:COUNT, where COUNT is how many places were ever taken in.
-- A place at or before the mark is passed: nothing is stored or cancelled. The mark moves to the highest
-- place of a call, also past messages that were not stored (refused here or by the client, conflict,
-- in_flight), since what comes after them must not be stored again. These stay open, each a further
-- word of the field, EPOCH:OFFSET:COUNT:TAG: such a message is judged whenever it comes again.
-- TAG stands for its id. Once a later place of the log has stored or cancelled that id, TAG is '-': an
-- earlier message never undoes a later one of its key; it is refused again, or passed.
-- A place is open while fewer than OPEN_FOR later ones were taken in: no source may have more messages of
-- a log unsettled. Calls about one log come in its order, and a failed one is repeated before the next.
local OPEN_FOR = 1000
local SUPERSEDED = '-'

local function tag_of(id) return string.sub(redis.sha1hex(id), 1, 16) end

local function open_place(mark, key, count, tag)
  local open = {key = key, count = count, tag = tag, number = #mark.words + 1}
  mark.words[open.number], mark.open[key] = open, open
  mark.tagged[tag] = mark.tagged[tag] or {}
  table.insert(mark.tagged[tag], open)
end

-- What is damaged is ignored: a message may then be stored twice, but none is held up.
local function read_mark(name, value)
  local mark = {name = name, epoch = -math.huge, offset = 0, count = 0, words = {}, open = {},
    tagged = {}}
  for word in string.gmatch(value or '', '%S+') do
    local epoch, offset, count, tag = string.match(word, '^(-?%d+):(%d+):(%d+):?(.*)$')
    if tag == '' then
      mark.epoch, mark.offset, mark.count = tonumber(epoch), tonumber(offset), tonumber(count)
    elseif tag then
      open_place(mark, epoch .. ':' .. offset, tonumber(count), tag)
    end
  end
  return mark
end

-- Return the places of a call by row, and their marks. The argument is empty, or msgpack: the logs, and
-- of each row the number of its log (0: no place), the epoch and the offset.
local function read_places(packed)
  if (packed or '') == '' then return {}, {} end
  local logs, numbers = unpack(cmsgpack.unpack(packed))
  local names, marks, places = {}, {}, {}
  for n, log in ipairs(logs) do names[n] = 'p:' .. log end
  for n, value in ipairs(redis.call('HMGET', META, unpack(names))) do
    marks[n] = read_mark(names[n], value)
  end
  for i = 1, #numbers, 3 do
    local mark = marks[numbers[i]]
    if mark then places[(i + 2) / 3] = {mark = mark, epoch = numbers[i + 1], offset = numbers[i + 2]} end
  end
  return places, marks
end

local function key_of(place) return string.format('%.0f:%.0f', place.epoch, place.offset) end

-- Whether a place was taken in before; an open one was not. `place` gets what is open there.
local function is_passed(place)
  local mark = place.mark
  if place.epoch > mark.epoch or place.epoch == mark.epoch and place.offset > mark.offset then
    return false
  end
  place.open = #mark.words > 0 and mark.open[key_of(place)] or nil
  return not place.open
end

local function is_superseded(place) return place.open and place.open.tag == SUPERSEDED end

-- End what earlier places of the log still ask of an id.
local function supersede(mark, place, id)
  local until_number = place.open and place.open.number or math.huge
  for _, open in ipairs(mark.tagged[tag_of(id)] or {}) do
    if open.number < until_number then open.tag = SUPERSEDED end
  end
end

-- Take in a place that is not passed: the mark moves, and the place is open if nothing was stored.
-- `supersedes`: it replaces or cancels what earlier places asked of the id.
local function take_in(place, id, is_stored, supersedes)
  local mark, open = place.mark, place.open
  mark.has_changed = true
  if not open then
    mark.epoch, mark.offset, mark.count = place.epoch, place.offset, mark.count + 1
    if not is_stored then return open_place(mark, key_of(place), mark.count, tag_of(id)) end
  end
  if not is_stored or #mark.words == 0 then return end
  if supersedes then supersede(mark, place, id) end
  if open then open.is_over = true end
end

local function mark_text(mark)
  local words = {string.format('%.0f:%.0f:%.0f', mark.epoch, mark.offset, mark.count)}
  for _, open in ipairs(mark.words) do
    if not open.is_over and open.count > mark.count - OPEN_FOR then
      words[#words + 1] = string.format('%s:%.0f:%s', open.key, open.count, open.tag)
    end
  end
  return table.concat(words, ' ')
end

local function write_marks(marks)
  for _, mark in ipairs(marks) do
    if mark.has_changed then redis.call('HSET', META, mark.name, mark_text(mark)) end
  end
end
