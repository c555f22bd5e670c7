#!lua flags=no-writes
-- get.lua: return the state, record and flight of one envelope.
--
-- ARGV[3]  id
-- Returns  {now, state, score, record, flight}, state '' if the id is unknown, score -1 for +inf
-- @include prelude find_state

local state, _, score = find_state(ARGV[3])
if not state then return {NOW, '', -1, '', ''} end
return {NOW, state, score == math.huge and -1 or score,
  redis.call('HGET', ENVELOPES, ARGV[3]) or '', redis.call('HGET', FLIGHT, ARGV[3]) or ''}
