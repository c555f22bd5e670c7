#!lua flags=allow-oom
-- readdress.lua: make the dead envelopes due that wait for another dead-letter target.
--
-- Transition  dead, without a target or rejected by one -> dead, due now
-- ARGV[3]  the dead-letter target in words; nothing moves while it is the one that was noted last
-- ARGV[4]  1: move them although the target is the same, at an operator's request
-- ARGV[5]  most to move
-- Returns  {poll, moved}; call it again until none is moved: then the target is noted
-- @include prelude batch dead poll

local target, is_asked = ARGV[3], ARGV[4] == '1'
if not is_asked and redis.call('HGET', META, 'dead_letter') == target then return {poll(), 0} end
local ids = redis.call('ZRANGE', DEAD, REJECTED, '+inf', 'BYSCORE', 'LIMIT', 0, limited(ARGV[5]))
local scores = {}
for i, id in ipairs(ids) do scores[2 * i - 1], scores[2 * i] = NOW, id end
zadd(DEAD, scores)
if #ids == 0 then redis.call('HSET', META, 'dead_letter', target) end
return {poll(), #ids}
