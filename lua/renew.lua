#!lua flags=allow-oom
-- renew.lua: put the counters of a shard beyond every number that was ever given out.
--
-- Needed once on a server that the shard was not renewed on, since it may have lost the newest writes.
-- Both counters rise by STEP at least, and to a floor that rises with the clock faster than they do, so
-- that two servers that lost the same writes, one after the other, give out different numbers, too: STEP
-- above the one that open.lua begins at, so that the clock decides in a young life as well
-- Journal  renewed, with the last number and generation found
-- Returns  {now, 1 if it did; 0: another call has}
-- @include prelude master life journal clock_floor

if life[3] == MASTER then return {NOW, 0} end

local STEP = 1048576  -- 2^20
local KEPT_JUMPS = 1000  -- without the jump, a reader that is behind it takes its hole for entries

local function beyond(found) return math.max(found + STEP, clock_floor(STEP)) end

local counted = redis.call('HMGET', META, 'generation', 'journal_sequence', 'journal_jumps')
local generation, sequence = tonumber(counted[1] or 0), tonumber(counted[2] or 0)
if not (generation and sequence) then return redis.error_reply('COUNTER expected numbers in meta') end
local first = beyond(sequence)

local jumps = {}
for jump in string.gmatch(counted[3] or '', '%d+:%d+') do jumps[#jumps + 1] = jump end
jumps[#jumps + 1] = string.format('%.0f:%.0f', sequence, first)
local oldest = math.max(1, #jumps - KEPT_JUMPS + 1)

local skipped = beyond(generation) - generation
redis.call('HINCRBY', META, 'generation', skipped)
redis.call('HINCRBY', META, 'generation_skipped', skipped)
redis.call('HINCRBY', META, 'journal_skipped', first - 1 - sequence)
redis.call('HSET', META, 'journal_sequence', string.format('%.0f', first - 1),
  'journal_jumps', table.concat(jumps, ' ', oldest), 'master', MASTER)
-- The filter may have lost ids that are cold: without it, every id may be. Nor is the floor known.
redis.call('HDEL', META, 'cold_words', 'next_words', 'cold_floor', 'next_floor')
append('renewed', cmsgpack.pack({}), 1, 'n', string.format('%.0f', sequence),
  'g', string.format('%.0f', generation))
return {NOW, 1}
