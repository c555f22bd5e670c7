"""The second format that Spark looks for by itself: `format("duebridge_journal")`."""

from duebridge_connectors.spark.source.datasource import DuebridgeJournal as DefaultSource

__all__ = ["DefaultSource"]
