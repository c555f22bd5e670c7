#!lua flags=allow-oom
-- readdress.lua: make the dead envelopes due that wait for another dead-letter target.
--
-- Transition  dead, without a target or rejected by a former one -> dead, due now
-- ARGV[4]  the dead-letter target in words
-- ARGV[5]  'changed': those without a target, and those that another target than this one rejected;
--          'asked': also those that this one rejected, at an operator's request, on a first call only;
--          'unaddressed': those without a target alone
-- ARGV[6]  most to move
-- Returns  {poll, moved}; call it again until none is moved
-- @include prelude master life renewed batch dead poll

local target, mode, most = ARGV[4], ARGV[5], limited(ARGV[6])
if mode == 'asked' or mode == 'changed' and redis.call('HGET', META, 'dead_letter') ~= target then
  redis.call('HINCRBY', META, 'readdressed', 1)
  redis.call('HSET', META, 'dead_letter', target)
end

local scores = {}
local function move(from, to)
  local ids = redis.call('ZRANGE', DEAD, from, to, 'BYSCORE', 'LIMIT', 0, most - #scores / 2)
  for _, id in ipairs(ids) do scores[#scores + 1], scores[#scores + 2] = NOW, id end
end
if mode ~= 'unaddressed' then move(string.format('%.0f', REJECTED), '(' .. rejected_score()) end
move('+inf', '+inf')
zadd(DEAD, scores)
return {poll(), #scores / 2}
