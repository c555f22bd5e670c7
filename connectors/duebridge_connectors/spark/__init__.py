"""Spark: a data source over the delay store and its journal, and the bulk jobs.

Spark discovers the formats `duebridge` and `duebridge_journal` if the wheel is installed with the
extra `spark`. `register` is for other installations, such as `--py-files`, and for threads started
by Python.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def register(spark: "SparkSession") -> None:
    """Register both formats with a session in this thread; harmless if repeated."""
    from duebridge_connectors.spark.source.dataframes import activate
    from duebridge_connectors.spark.source.datasource import DuebridgeJournal, DuebridgeSource

    for source in (DuebridgeSource, DuebridgeJournal):
        activate(spark).dataSource.register(source)
