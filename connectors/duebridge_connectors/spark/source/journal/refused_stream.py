"""A stream that could not be opened: it says so when Spark asks it for an offset.

Spark 4.2 hides an error of `streamReader` behind one of its own (`UnboundLocalError: reader`).
"""

from typing import NoReturn

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit

from duebridge.errors import BridgeError
from duebridge_connectors.spark.source.journal.offset import Offset
from duebridge_connectors.spark.source.message_first import message_first


class RefusedStream(DataSourceStreamReader):
    """Raises the error at every question."""

    def __init__(self, error: BridgeError) -> None:
        self._error = error

    def initialOffset(self) -> Offset:  # noqa: N802 - Spark's name
        """Raise the error."""
        self._refuse()

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's name
        """Raise the error."""
        self._refuse()

    def latestOffset(  # noqa: N802 - Spark's name
        self,
        start: Offset,  # noqa: ARG002
        limit: ReadLimit,  # noqa: ARG002
    ) -> Offset:
        """Raise the error."""
        self._refuse()

    def read(self, partition: InputPartition) -> NoReturn:  # noqa: ARG002
        """Raise the error."""
        self._refuse()

    @message_first()
    def _refuse(self) -> NoReturn:
        raise self._error
