"""A worker process as others see it: probes, metrics, and its record in the store."""
