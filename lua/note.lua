#!lua flags=allow-oom
-- note.lua: note in meta how far a job outside the store has come.
--
-- ARGV[4]  hydrated_until, hydrating_until, journal_kept or cold_kept
-- ARGV[5]  ms, a journal number, or a number of marks
-- ARGV[6]  set; first: a later note changes nothing; rise: nor does a lower one
-- ARGV[7]  the token of the caller's lease of the cold tier, '' for none
-- Returns  {now, 1 if it changed}
-- @include prelude master life renewed batch record memory filter cold

if has_lost_cold_lease(ARGV[7]) then return refuse_without_lease() end
local name, value, how = ARGV[4], tonumber(ARGV[5]), ARGV[6]
local found = tonumber(redis.call('HGET', META, name) or '')
if found and (how == 'first' or value == found or (how == 'rise' and value < found)) then
  return {NOW, 0}
end
redis.call('HSET', META, name, ARGV[5])
return {NOW, 1}
