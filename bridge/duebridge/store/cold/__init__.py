"""A shard's notes on its route's cold tier, and the lease that excludes its jobs."""
