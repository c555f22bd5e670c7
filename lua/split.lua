#!lua flags=no-writes
-- split.lua: divide the index of a state into parts of equal size, without looking at an envelope.
--
-- ARGV[4]  pending, ready, suspect, unack, retry or dead
-- ARGV[5]  least score, and ARGV[6] greatest score, ms or -inf, +inf
-- ARGV[7]  most envelopes of a part; it rises where that would be more than 500 parts
-- Returns  {now, how many there are, ids, scores (-1: +inf)}: of the last of each part, but for the last part
-- @include prelude

local MOST_PARTS = 500
local keys = {pending = PENDING, ready = READY, suspect = SUSPECT, unack = UNACK, retry = RETRY,
  dead = DEAD}
local key = keys[ARGV[4]]
if not key then return redis.error_reply('STATE expected one of the states, got ' .. ARGV[4]) end

local first = redis.call('ZCOUNT', key, '-inf', '(' .. ARGV[5])
local count = redis.call('ZCOUNT', key, ARGV[5], ARGV[6])
local size = math.max(1, tonumber(ARGV[7]), math.ceil(count / MOST_PARTS))
local ids, scores = {}, {}
for rank = first + size - 1, first + count - 2, size do
  local found = redis.call('ZRANGE', key, rank, rank, 'WITHSCORES')
  ids[#ids + 1], scores[#scores + 1] = found[1], found[2] == 'inf' and -1 or tonumber(found[2])
end
return {NOW, count, ids, scores}
