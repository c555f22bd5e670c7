"""What others see of a worker process: probes, metrics, and its record in the store."""
