"""The Spark data source `duebridge`: the delay store as a table and a stream."""
