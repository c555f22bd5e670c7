"""The Parquet files of a cold tier: columns, row groups, ranges of due, filters of ids."""
