#!lua flags=allow-oom
-- occupy.lua: take the lease of the shard's cold tier, or renew one that the caller has.
--
-- While a job has it no other brings rows back, rebuilds the filter or drops marks.
-- ARGV[4]  token that the caller has, '' for none; ARGV[5] its token from now on
-- ARGV[6]  how long the lease lives, ms; ARGV[7] who the caller is, for people
-- Returns  {now, 1 if the caller has it; 0: who has, since, until}: a lost lease is never renewed, since
--          another job may have come and gone
-- @include prelude master life renewed batch record memory filter cold

local token, since, deadline, who = holder_of_cold()
local is_own = token and (token == ARGV[4] or token == ARGV[5])
local is_free = not token or deadline <= NOW
if not is_own and (ARGV[4] ~= '' or not is_free) then
  return {NOW, 0, who or '', since or 0, deadline or 0}
end
since, deadline = is_own and since or NOW, NOW + tonumber(ARGV[6])
redis.call('HSET', META, 'cold_lease',
  string.format('%s %.0f %.0f %s', ARGV[5], since, deadline, ARGV[7]))
return {NOW, 1, ARGV[7], since, deadline}
