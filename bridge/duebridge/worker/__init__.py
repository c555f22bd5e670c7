"""The worker process: claims due envelopes, publishes them and settles the outcome."""
