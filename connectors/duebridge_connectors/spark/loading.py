"""A write as one call, for jobs: mistakes are raised as ours, and the summary comes back."""

from pathlib import Path
from tempfile import TemporaryDirectory

import msgspec
from pyspark.sql import DataFrame

from duebridge_connectors.spark.active import activated
from duebridge_connectors.spark.planning import plan_write
from duebridge_connectors.spark.source import NAME
from duebridge_connectors.spark.summary import Summary


def write_envelopes(frame: DataFrame, **options: str | int) -> Summary:
    """Schedule every row of a frame and return what became of them; options as of the format.

    Raises `ConfigError`, `StoreUnavailable` and `StoreUnfit` before any row is written. What goes
    wrong later is Spark's own exception; running it again changes nothing of what is stored.
    """
    given = {name: str(value) for name, value in options.items()}
    with TemporaryDirectory(prefix="duebridge-") as home:
        given.setdefault("summary", f"{home}/summary.json")
        plan_write(given, frame.schema)
        activated(frame.sparkSession)
        frame.write.format(NAME).options(**given).mode("append").save()
        return msgspec.json.decode(Path(given["summary"]).read_bytes(), type=Summary)
