#!lua flags=no-writes
-- list.lua: list one page of the envelopes of a state, ordered by score.
--
-- ARGV[4]  pending, ready, suspect, unack, retry or dead
-- ARGV[5]  least score, and ARGV[6] greatest score, ms or -inf, +inf
-- ARGV[7]  last id of the previous page, and ARGV[8] its score, '' for the first page
-- ARGV[9]  most envelopes
-- ARGV[10]  most bytes of records, but at least one envelope
-- Returns  {now, ids, scores (-1: +inf), records ('' where damaged), flights}
-- @include prelude batch record page

local keys = {pending = PENDING, ready = READY, suspect = SUSPECT, unack = UNACK, retry = RETRY,
  dead = DEAD}
local key = keys[ARGV[4]]
if not key then return redis.error_reply('STATE expected one of the states, got ' .. ARGV[4]) end

local function first_rank()
  if ARGV[8] == '' then return redis.call('ZCOUNT', key, '-inf', '(' .. ARGV[5]) end
  return rank_after(key, ARGV[7], ARGV[8])
end

local function up_to(bound)
  return ARGV[bound] == '+inf' and math.huge or tonumber(ARGV[bound])
end

local from, most, count = first_rank(), up_to(6), limited(ARGV[9])
if count == 0 then return {NOW, {}, {}, {}, {}} end
local found = redis.call('ZRANGE', key, from, from + count - 1, 'WITHSCORES')
local ids, scores = {}, {}
for i = 1, #found, 2 do
  local score = found[i + 1] == 'inf' and math.huge or tonumber(found[i + 1])
  if score > most then break end
  ids[#ids + 1], scores[#scores + 1] = found[i], score == math.huge and -1 or score
end

local records = fetch(ids, ARGV[10])
local flights = hmget(FLIGHT, ids)
for i = #scores, #ids + 1, -1 do scores[i] = nil end
for i = 1, #ids do
  records[i], flights[i] = records[i] or '', flights[i] or ''
end
return {NOW, ids, scores, records, flights}
