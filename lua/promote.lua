#!lua flags=allow-oom
-- promote.lua: make due envelopes ready, earliest first.
--
-- Transition  pending | retry -> ready; a retry whose lease ran out twice -> suspect
-- ARGV[4]  most to promote
-- ARGV[5]  capacity of ready: further due envelopes stay where they are, so that a million due at
--          once neither block the server nor fix their order early
-- Returns  {poll, promoted}
-- @include prelude master life renewed batch flight promote poll

local promoted = promote(ARGV[4], ARGV[5])
return {poll(), promoted}
