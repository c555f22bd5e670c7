#!lua flags=allow-oom
-- note.lua: note in meta how far a job outside the store has come.
--
-- ARGV[4]  hydrated_until, journal_kept or cold_kept
-- ARGV[5]  ms, a journal number, or a number of marks
-- ARGV[6]  set; first: a later note changes nothing; rise: nor does a lower one
-- Returns  {now, 1 if it changed}
-- @include prelude master life renewed

local name, value, how = ARGV[4], tonumber(ARGV[5]), ARGV[6]
local found = tonumber(redis.call('HGET', META, name) or '')
if found and (how == 'first' or value == found or (how == 'rise' and value < found)) then
  return {NOW, 0}
end
redis.call('HSET', META, name, ARGV[5])
return {NOW, 1}
