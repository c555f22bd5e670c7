"""The cold tier: Parquet files of far envelopes, and the log of which files count."""
