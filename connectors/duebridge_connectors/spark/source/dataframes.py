"""The data source as functions: frames read from the store, and a frame written to it."""

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import msgspec
from pyspark.sql import DataFrame, SparkSession

from duebridge_connectors.spark.source.datasource import NAME
from duebridge_connectors.spark.source.loader import Summary
from duebridge_connectors.spark.source.planning import plan_write


def activate(spark: SparkSession) -> SparkSession:
    """Return the session, active in the thread that calls.

    Spark looks a format up in its thread's active session, and a thread that Python began has
    none: `format("duebridge")` would be unknown there, registered or not.
    """
    session: Any = getattr(spark, "_jsparkSession", None)  # a client of Spark Connect has none
    if session is not None:
        jvm: Any = spark._jvm
        jvm.org.apache.spark.sql.classic.SparkSession.setActiveSession(session)
    return spark


def write_envelopes(frame: DataFrame, **options: str | int) -> Summary:
    """Schedule every row of a frame and return what became of them; options as of the format.

    Raises `ConfigError`, `StoreUnavailable` and `StoreUnfit` before any row is written. What goes
    wrong later is Spark's own exception; running it again changes nothing of what is stored.
    """
    given = {name: str(value) for name, value in options.items()}
    with TemporaryDirectory(prefix="duebridge-") as home:
        given.setdefault("summary", f"{home}/summary.json")
        plan_write(given, frame.schema)
        activate(frame.sparkSession)
        frame.write.format(NAME).options(**given).mode("append").save()
        return msgspec.json.decode(Path(given["summary"]).read_bytes(), type=Summary)
