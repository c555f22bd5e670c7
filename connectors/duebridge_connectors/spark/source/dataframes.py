"""The data source as functions: frames read from the store, and a frame written to it."""

from tempfile import TemporaryDirectory
from typing import Any

import msgspec
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.readwriter import DataStreamWriter

from duebridge.durations import parse_duration_ms
from duebridge_connectors.spark.filesystem import read_file
from duebridge_connectors.spark.source.datasource import JOURNAL_NAME, NAME
from duebridge_connectors.spark.source.loader import Summary
from duebridge_connectors.spark.source.option_names import spark_options
from duebridge_connectors.spark.source.options import write_options
from duebridge_connectors.spark.source.planning import plan_write


def activate(spark: SparkSession) -> SparkSession:
    """Make the session the active one of the calling thread, and return it.

    Spark resolves a Python format through the active session of the thread, and a thread started
    by Python has none: there `format("duebridge")` would be unknown even if registered.
    """
    session: Any = getattr(spark, "_jsparkSession", None)  # absent under Spark Connect
    if session is not None:
        jvm: Any = spark._jvm
        jvm.org.apache.spark.sql.classic.SparkSession.setActiveSession(session)
    return spark


def read_source(spark: SparkSession, **options: str | int) -> DataFrame:
    """Return the envelopes of the store or, with stream="journal", its journal."""
    return activate(spark).read.format(NAME).options(**spark_options(options)).load()


def stream_journal(spark: SparkSession, **options: str | int) -> DataFrame:
    """Return the journal as a stream."""
    reader = activate(spark).readStream.format(JOURNAL_NAME)
    return reader.options(**spark_options(options)).load()


def run_query(writer: DataStreamWriter, every: str | None) -> None:
    """Run a streaming query: until stopped with `every` (as `1m`), else to the end of its input."""
    trigger: dict[str, Any] = {"availableNow": True}
    if every is not None:
        trigger = {"processingTime": f"{parse_duration_ms(every, 'every')} milliseconds"}
    query = writer.trigger(**trigger).start()
    try:
        query.awaitTermination()
    finally:
        query.stop()


def check_write_options(**options: str | int) -> None:
    """Raise `ConfigError` for options that `write_envelopes` would refuse."""
    write_options(spark_options(options))


def write_envelopes(frame: DataFrame, **options: str | int) -> Summary:
    """Schedule every row of a frame with the options of the format, and return the counts.

    Raises `ConfigError`, `StoreUnavailable` and `StoreUnfit` before any row is written, and later
    Spark's own exceptions. A second run stores nothing twice.
    """
    given = spark_options(options)
    with TemporaryDirectory(prefix="duebridge-") as home:
        given.setdefault("summary", f"{home}/summary.json")
        planned = plan_write(given, frame.schema)
        most = planned.options.max_connections
        activate(frame.sparkSession)
        frame = frame if most is None else frame.coalesce(most)
        frame.write.format(NAME).options(**given).mode("append").save()
        said = read_file(planned.stores.place(given["summary"]))
        return msgspec.json.decode(said, type=Summary)
