#!lua flags=no-writes
-- recall.lua: tell what was taken in before, whatever its id has become since.
--
-- ARGV[4]  number of contents, then for each: id, hash
-- Returns  {now, answers}: for each `ended` if the id is remembered to have ended with this content, even
--          if other content ended under it since; else `lives` if the store has something under the id;
--          else ''
-- @include prelude batch record memory find_state

local count, FIRST, WIDTH = tonumber(ARGV[4]), 5, 2
if count > MAX_BATCH then return redis.error_reply('LIMIT at most 1000 contents a call') end
local ids, answers = first_fields(FIRST, WIDTH, count), {}
local remembered, earlier = read_memory('r', ids), read_memory('e', ids)

for i, id in ipairs(ids) do
  local hash, last, others = ARGV[FIRST + (i - 1) * WIDTH + 1], unexpired(remembered[i]), unexpired(earlier[i])
  local has_ended = last and string.sub(last, 7, 14) == hash or others and is_among_earlier(others, hash)
  local lives = not has_ended and has_state(id, redis.call('HEXISTS', ENVELOPES, id) == 1)
  answers[i] = has_ended and 'ended' or lives and 'lives' or ''
end
return {NOW, answers}
