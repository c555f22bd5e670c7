#!lua flags=no-writes
-- get.lua: return the state, record and flight of one envelope.
--
-- ARGV[4]  id
-- Returns  {now, state, score, record, flight}, state '' if the id is unknown, score -1 for +inf
-- @include prelude find_state

local state, _, score = find_state(ARGV[4])
if not state then return {NOW, '', -1, '', ''} end
return {NOW, state, score == math.huge and -1 or score,
  redis.call('HGET', ENVELOPES, ARGV[4]) or '', redis.call('HGET', FLIGHT, ARGV[4]) or ''}
