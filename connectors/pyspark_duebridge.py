"""What Spark looks for by itself: `DefaultSource` of a top-level module named `pyspark_*`."""

from duebridge_connectors.spark.source.datasource import DuebridgeSource as DefaultSource

__all__ = ["DefaultSource"]
