#!lua flags=allow-oom
-- remove.lua: remove a shard of a life that ends, with all its keys; a shard of the next life stays.
--
-- KEYS     of the shard, in the order of shared/prelude.lua
-- ARGV[1]  the epoch of the life that ends; ARGV[2] the one that the shard was seen with while that life was
--          not yet over: '' for none, another where a failover lost the shard's opening. A shard without an
--          epoch is removed again: a call that waits for replicas always writes
-- Returns  the number of envelopes that were removed
local ENVELOPES, META = KEYS[7], KEYS[10]
local epoch = redis.call('HGET', META, 'epoch') or ''
if epoch ~= '' and epoch ~= ARGV[1] and epoch ~= ARGV[2] then return 0 end

local count = redis.call('HLEN', ENVELOPES)
redis.call('HSET', META, 'waited', 0)  -- WAIT counts the replicas that have a connection's last write
redis.call('UNLINK', unpack(KEYS))
return count
