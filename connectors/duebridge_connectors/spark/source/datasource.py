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

from duebridge_connectors.spark.source.message_first import message_first

NAME = "duebridge"
JOURNAL_NAME = "duebridge_journal"


class DuebridgeSource(DataSource):
    """The delay store as a readable and writable table, and its journal as a stream."""

    @classmethod
    def name(cls) -> str:
        """Return the name of the format."""
        return NAME

    @message_first()
    def schema(self) -> StructType:
        """Return the columns of a read, which depend on the options."""
        from duebridge_connectors.spark.rows.schema import DECODED, PACKED
        from duebridge_connectors.spark.source.options import is_of_journal, read_options

        if is_of_journal(self.options):
            return DuebridgeJournal(self.options).schema()
        return PACKED if read_options(self.options).content == "packed" else DECODED

    @message_first()
    def reader(self, schema: StructType) -> DataSourceReader:
        """Return the reader of the store or its journal; raises `ConfigError`, `StoreError`."""
        from duebridge_connectors.spark.source.option_names import warn_of_former
        from duebridge_connectors.spark.source.options import is_of_journal
        from duebridge_connectors.spark.source.planning import plan_read
        from duebridge_connectors.spark.source.pushdown import may_push_filters
        from duebridge_connectors.spark.source.store_reader import FilteringReader, StoreReader

        if is_of_journal(self.options):
            return DuebridgeJournal(self.options).reader(schema)
        warn_of_former(self.options)
        reader = FilteringReader if may_push_filters() else StoreReader
        return reader(*plan_read(self.options))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
        """Return the stream of the journal; what is refused fails at its first offset."""
        return DuebridgeJournal(self.options).streamReader(schema)

    @message_first()
    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """Return the batch writer; raises `ConfigError` and `StoreError` before any row."""
        from duebridge_connectors.spark.source.option_names import warn_of_former
        from duebridge_connectors.spark.source.planning import plan_write
        from duebridge_connectors.spark.source.writer import BatchWriter

        warn_of_former(self.options)
        return BatchWriter(plan_write(self.options, schema, overwrite))

    @message_first()
    def streamWriter(  # noqa: N802 - Spark's name
        self, schema: StructType, overwrite: bool
    ) -> DataSourceStreamWriter:
        """Return the streaming writer; raises `ConfigError` and `StoreError` before any row."""
        from duebridge_connectors.spark.source.option_names import warn_of_former
        from duebridge_connectors.spark.source.planning import plan_write
        from duebridge_connectors.spark.source.writer import StreamWriter

        warn_of_former(self.options)
        return StreamWriter(plan_write(self.options, schema, overwrite))


class DuebridgeJournal(DataSource):
    """The journal alone, to be read at once or as a stream.

    Spark asks a format for its columns before it says whether it reads at once or as a stream, so
    what is a stream by default needs a name of its own.
    """

    @classmethod
    def name(cls) -> str:
        """Return the name of the format."""
        return JOURNAL_NAME

    @message_first()
    def schema(self) -> StructType:
        """Return the columns of the journal, or of its ranges."""
        from duebridge_connectors.spark.rows.schema import JOURNAL, RANGES
        from duebridge_connectors.spark.source.options import is_of_ranges

        return RANGES if is_of_ranges(self.options) else JOURNAL

    @message_first()
    def reader(self, schema: StructType) -> DataSourceReader:  # noqa: ARG002
        """Return the reader of what there is now; raises `ConfigError` and `StoreError`."""
        from duebridge_connectors.spark.source.journal.reader import (
            FilteringJournalReader,
            JournalBatchReader,
        )
        from duebridge_connectors.spark.source.option_names import warn_of_former
        from duebridge_connectors.spark.source.planning import plan_journal
        from duebridge_connectors.spark.source.pushdown import may_push_filters

        warn_of_former(self.options)
        reader = FilteringJournalReader if may_push_filters() else JournalBatchReader
        return reader(*plan_journal(self.options))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
        """Return the stream of the journal; what is refused fails at its first offset."""
        from duebridge.errors import BridgeError
        from duebridge_connectors.spark.rows.schema import check_stream_columns
        from duebridge_connectors.spark.source.journal.reader import JournalStreamReader
        from duebridge_connectors.spark.source.journal.refused_stream import RefusedStream
        from duebridge_connectors.spark.source.option_names import warn_of_former
        from duebridge_connectors.spark.source.planning import plan_journal

        warn_of_former(self.options)
        try:
            check_stream_columns(schema, self.schema())
            return JournalStreamReader(*plan_journal(self.options))
        except BridgeError as error:
            return RefusedStream(error)
