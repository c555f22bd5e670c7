-- The replication id of the server that runs this script: another one after a restart, a failover or a
-- move of the slot, any of which may have lost writes. Read here, so that no client can bring a stale one.
local REPLICATION = redis.call('INFO', 'replication')
local _, before_id = string.find(REPLICATION, 'master_replid:', 1, true)  -- plain: a pattern costs 5 µs
local MASTER = string.sub(REPLICATION, before_id + 1, before_id + 40)
