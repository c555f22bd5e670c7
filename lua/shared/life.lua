-- The route's life: a client that opened another life (the route was removed and made again) is refused
-- before anything is written, since it would spread ids by another number of shards.
-- ARGV[3]  epoch and number of shards of the client's life, as 'EPOCH:SHARDS'
local life = redis.call('HMGET', META, 'epoch', 'shards', 'master')
if not life[1] or life[1] .. ':' .. (life[2] or '') ~= ARGV[3] then
  return redis.error_reply('LIFE the route is in another life, or was not opened')
end
