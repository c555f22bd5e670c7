-- Pages of an index, ordered by score and then id.

-- Whether an id comes before another one of the same score: by bytes, where Lua's < asks the locale.
local function precedes(id, other)
  for i = 1, math.min(#id, #other) do
    local byte, another = string.byte(id, i), string.byte(other, i)
    if byte ~= another then return byte < another end
  end
  return #id < #other
end

-- Whether a row is elsewhere. Replies have whole numbers: a damaged score is not what its cursor says.
local function has_moved(now, score)
  local is_whole = now >= 0 and (now < 9007199254740992 or now == math.huge)  -- 2^53
  return is_whole and math.abs(now - score) >= 1
end

-- Return the rank that follows a row, or its place if its id is gone or has another score by now.
local function rank_after(key, id, score)
  local now = redis.call('ZSCORE', key, id)
  if now and not has_moved(tonumber(now), tonumber(score)) then return redis.call('ZRANK', key, id) + 1 end
  local first, last = redis.call('ZCOUNT', key, '-inf', '(' .. score), redis.call('ZCOUNT', key, '-inf', score)
  while first < last do
    local middle = math.floor((first + last) / 2)
    if precedes(id, redis.call('ZRANGE', key, middle, middle)[1]) then
      last = middle
    else
      first = middle + 1
    end
  end
  return first
end

-- Return the ids and scores of retry after a row ('' for the first page), at most `count`.
local function retry_page(id, score, count)
  local from = score == '' and 0 or rank_after(RETRY, id, score)
  local rows, ids, scores = redis.call('ZRANGE', RETRY, from, from + count - 1, 'WITHSCORES'), {}, {}
  for i = 1, #rows, 2 do ids[#ids + 1], scores[#scores + 1] = rows[i], rows[i + 1] end
  return ids, scores
end
