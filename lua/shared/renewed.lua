-- Refuse to write until renew.lua has put the counters beyond every number that was ever given out.
if life[3] ~= MASTER then
  return redis.error_reply('RENEW the server is not the one that the shard was renewed on')
end

-- WAIT counts the replicas that have the last write of its connection: a call that waits always writes.
if string.byte(ARGV[2]) == 43 then redis.call('HSET', META, 'waited', NOW) end
