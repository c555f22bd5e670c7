#!lua
-- schedule.lua: accept envelopes; each waits in pending until it is due.
--
-- Transition  (unknown) -> pending; with `replace`, pending | ready | retry | dead -> pending
-- ARGV[3]  longest allowed delay, ms
-- ARGV[4]  1: other content under a living id replaces it; 0: it is refused
-- ARGV[5]  call id, so that a repeated call changes nothing and answers as it did, and ARGV[6] how
--          long, ms; '' for a call that is never repeated
-- ARGV[7]  number of envelopes, then for each: id, due, expires ('' never), remember ms, hash,
--          generation ('0', or that of a cold row), blob
-- Returns  {now, status, due ms, status, due ms, ...}; an envelope that is refused changes nothing
-- @include keys clock bytes batch record flight journal memory finish whereabouts wake judge accept

local count = tonumber(ARGV[7])
if count > MAX_BATCH then return redis.error_reply('LIMIT at most 1000 envelopes a call') end

local before = ARGV[5] ~= '' and recall('c' .. ARGV[5])
if before then return cmsgpack.unpack(before) end

local ids = {}
for i = 1, count do ids[i] = ARGV[1 + i * 7] end
local records = hmget(ENVELOPES, ids)
local remembered = recall_ids(ids)
local call = {max_delay = tonumber(ARGV[3]), replace = ARGV[4] == '1'}
local batch = new_batch(count)

for i = 1, count do
  local at = 1 + i * 7
  local given = {id = ARGV[at], due = resolve(ARGV[at + 1]), remember = tonumber(ARGV[at + 3]),
    expires = ARGV[at + 2] ~= '' and resolve(ARGV[at + 2]) or 0, hash = ARGV[at + 4],
    generation = tonumber(ARGV[at + 5]), blob = ARGV[at + 6], remembered = remembered[i]}
  answer(batch, judge(batch, call, given, records[i]), given)
end

give_back(batch)
write_batch(batch)
if ARGV[5] ~= '' then memorize('c' .. ARGV[5], cmsgpack.pack(batch.reply), tonumber(ARGV[6])) end
return batch.reply
