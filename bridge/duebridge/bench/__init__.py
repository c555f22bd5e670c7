"""Benchmarks the bridge beside the same client publishing alone: `duebridge bench`."""
