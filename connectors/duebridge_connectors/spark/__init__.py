"""The bulk side: a Spark data source over the delay store and its journal.

Spark finds the format `duebridge` by itself where the wheel is installed, with the extra `spark`;
`register` is for where it is not, as with files of `--py-files`, and for threads of your own.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def register(spark: "SparkSession") -> None:
    """Make `format("duebridge")` known to a session, in this thread; harmless where it is known."""
    from duebridge_connectors.spark.source.dataframes import activate
    from duebridge_connectors.spark.source.datasource import DuebridgeSource

    activate(spark).dataSource.register(DuebridgeSource)
