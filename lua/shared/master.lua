-- The replication id of the server that runs this script: another one after a restart, a failover or a
-- move of the slot, any of which may have lost writes. Read here, so that no client can bring a stale one.
local MASTER = string.match(redis.call('INFO', 'replication'), 'master_replid:(%x+)')
