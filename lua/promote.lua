#!lua flags=allow-oom
-- promote.lua: make due envelopes ready, earliest first.
--
-- Transition  pending | retry -> ready; a retry whose lease ran out twice -> suspect
-- ARGV[3]  most to promote
-- ARGV[4]  ready is full at this many: what is due waits where it is, so that a million due at
--          once neither blocks the server nor freezes its order
-- Returns  {poll, promoted}
-- @include prelude batch flight promote poll

local promoted = promote(ARGV[3], ARGV[4])
return {poll(), promoted}
