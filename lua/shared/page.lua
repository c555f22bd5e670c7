-- Pages of an index, ordered by score and then id.

-- Return the rank that follows a row. If its id is gone, or has another score by now, the page begins at
-- the row's score: rows may repeat, but none is skipped.
local function rank_after(key, id, score)
  local found = redis.call('ZSCORE', key, id)
  if found and tonumber(found) == tonumber(score) then return redis.call('ZRANK', key, id) + 1 end
  return redis.call('ZCOUNT', key, '-inf', '(' .. score)
end

-- Return the ids and scores of retry after a row ('' for the first page), at most `count`.
local function retry_page(id, score, count)
  local from = score == '' and 0 or rank_after(RETRY, id, score)
  local rows, ids, scores = redis.call('ZRANGE', RETRY, from, from + count - 1, 'WITHSCORES'), {}, {}
  for i = 1, #rows, 2 do ids[#ids + 1], scores[#scores + 1] = rows[i], rows[i + 1] end
  return ids, scores
end
