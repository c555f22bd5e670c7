#!lua flags=allow-oom
-- lift.lua: drop tombstones and void copies whose cold rows are all hydrated.
--
-- ARGV[4]  generation: keep tombstones of this or a later one: they may apply to unread rows
-- ARGV[5]  number of names (`t` and an id, or `x`, a batch, a slash and an id), then the names, and the
--          token of the caller's lease of the cold tier, '' for none
-- Returns  {now, dropped}
-- @include prelude master life renewed batch record memory filter cold

local generation, count = tonumber(ARGV[4]), tonumber(ARGV[5])
if count > MAX_BATCH then return redis.error_reply('LIMIT at most 1000 names a call') end
if has_lost_cold_lease(ARGV[6 + count]) then return refuse_without_lease() end
local names = arguments(6, count)
local values, dropped = hmget(MEMORY, names), {}

for i, name in ipairs(names) do
  local is_void = string.byte(name) == 120
  if values[i] and (is_void or number_at(values[i], 7, 12) < generation) then
    dropped[#dropped + 1] = name
  end
end
hdel(MEMORY, dropped)
zrem(FORGET, dropped)
return {NOW, #dropped}
