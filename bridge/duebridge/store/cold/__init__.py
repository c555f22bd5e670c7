"""What a shard knows of its route's cold tier, and the lease that excludes its jobs."""
