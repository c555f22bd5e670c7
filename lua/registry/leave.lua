#!lua flags=allow-oom
-- leave.lua: begin, take back or finish the removal of one life of a route. In between nobody can open the
-- route, so that no shard comes back behind the removal. Its end is journalled in a stream of the namespace,
-- since the route's own journals are gone: the newest 1,000, each with `t` ms, `r` the route, `s` its shards,
-- `n` its envelopes, waiting and dead, and `w` the person who gave it. `n` is what was found when the removal
-- first began, or what its last repeat removed, whichever is more.
--
-- KEYS     {namespace}:routes, {namespace}:epochs, {namespace}:purged
-- ARGV[1]  name of the route
-- ARGV[2]  the life that ends: its epoch, '' for a route without one. Another is left alone
-- ARGV[3]  'begin': ARGV[4] envelopes as found, ARGV[5] a name for a life without an epoch
--          'undo': the life goes on
--          'finish': ARGV[4] shards, ARGV[5] envelopes that were removed, ARGV[6] the person, '' for none
-- Returns  {the life, 1 if this call began its removal else 0}; nothing where that life has ended
local ROUTES, EPOCHS, PURGED, route = KEYS[1], KEYS[2], KEYS[3], ARGV[1]
local note_name = '-' .. route  -- LIFE:ENVELOPES of the removal that goes on; no route has such a name
local epoch = redis.call('HGET', EPOCHS, route) or ''
local is_removed = epoch == '-'
local note = is_removed and redis.call('HGET', EPOCHS, note_name) or ''  -- an earlier duebridge wrote none
local noted, found = string.match(note, '^(.*):(%d+)$')
local life = is_removed and (noted or '') or epoch
if life ~= ARGV[2] then return {} end

if ARGV[3] == 'begin' then
  if noted then
    redis.call('HSET', EPOCHS, note_name, note)  -- a call that waits for replicas always writes
    return {life, 0}
  end
  if life == '' then life = ARGV[5] end
  redis.call('HSET', EPOCHS, route, '-', note_name, life .. ':' .. ARGV[4])
  return {life, is_removed and 0 or 1}
end

if not noted then return {} end
if ARGV[3] == 'undo' then
  redis.call('HSET', EPOCHS, route, life)
else
  local time = redis.call('TIME')
  redis.call('XADD', PURGED, 'MAXLEN', 1000, '*', 't', time[1] * 1000 + math.floor(time[2] / 1000),
    'r', route, 's', ARGV[4], 'n', math.max(tonumber(found), tonumber(ARGV[5])), 'w', ARGV[6])
  redis.call('HDEL', ROUTES, route)
  redis.call('HDEL', EPOCHS, route)
end
redis.call('HDEL', EPOCHS, note_name)
return {life, 0}
