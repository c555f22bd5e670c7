"""`format("duebridge")`: builds readers and writers from options, all validated on the driver.

Every session that discovers Python data sources imports this module, so it imports everything
except Spark on first use.
"""

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)
from pyspark.sql.types import StructType

NAME = "duebridge"


class DuebridgeSource(DataSource):
    """The delay store as a readable and writable table, and its journal as a stream."""

    @classmethod
    def name(cls) -> str:
        """Return the name of the format."""
        return NAME

    def schema(self) -> StructType:
        """Return the columns of a read, which depend on the options."""
        from duebridge_connectors.spark.source.options import is_of_journal, read_options
        from duebridge_connectors.spark.source.schema import DECODED, JOURNAL, PACKED

        if is_of_journal(self.options):
            return JOURNAL
        return PACKED if read_options(self.options).content == "packed" else DECODED

    def reader(self, schema: StructType) -> DataSourceReader:  # noqa: ARG002
        """Return the reader of the store or its journal; raises `ConfigError`, `StoreError`."""
        from duebridge_connectors.spark.source.journal_reader import JournalBatchReader
        from duebridge_connectors.spark.source.options import is_of_journal
        from duebridge_connectors.spark.source.planning import plan_journal, plan_read
        from duebridge_connectors.spark.source.store_reader import StoreReader

        if is_of_journal(self.options):
            return JournalBatchReader(*plan_journal(self.options))
        return StoreReader(*plan_read(self.options))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: ARG002, N802
        """Return the stream of the journal; raises `ConfigError` and `StoreError`."""
        from duebridge_connectors.spark.source.journal_reader import JournalStreamReader
        from duebridge_connectors.spark.source.planning import plan_journal

        return JournalStreamReader(*plan_journal(self.options))

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """Return the batch writer; raises `ConfigError` and `StoreError` before any row."""
        from duebridge_connectors.spark.source.planning import plan_write
        from duebridge_connectors.spark.source.writer import BatchWriter

        return BatchWriter(plan_write(self.options, schema, overwrite))

    def streamWriter(  # noqa: N802 - Spark's name
        self, schema: StructType, overwrite: bool
    ) -> DataSourceStreamWriter:
        """Return the streaming writer; raises `ConfigError` and `StoreError` before any row."""
        from duebridge_connectors.spark.source.planning import plan_write
        from duebridge_connectors.spark.source.writer import StreamWriter

        return StreamWriter(plan_write(self.options, schema, overwrite))
