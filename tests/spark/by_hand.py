"""The source's own calls, as Spark makes them but in this process: a real job costs seconds.

What a real session adds (processes, retries, checkpoints) has tests of its own.
"""

import pickle
from collections.abc import Sequence
from typing import Any, TypeVar

import msgspec
import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import DataType, LongType, StringType, StructType

from duebridge_connectors.spark.source.journal.reader import JournalStreamReader
from duebridge_connectors.spark.source.loader import Summary
from duebridge_connectors.spark.source.planning import plan_journal, plan_read, plan_write
from duebridge_connectors.spark.source.store_reader import StoreReader
from duebridge_connectors.spark.source.writer import BatchWriter
from tests.spark.world import World

T = TypeVar("T")
KINDS: dict[str, DataType] = {"due_at": LongType(), "number": LongType()}


def shipped(made: T) -> T:
    """What arrives in a task."""
    return pickle.loads(pickle.dumps(made))  # noqa: S301 - made here


def write_by_hand(
    world: World, rows: Sequence[dict[str, Any]], route: str = "plain", **options: Any
) -> Summary:
    """Write rows as two tasks would, and commit them; columns are text but for a few."""
    place = world.home / "by-hand.json"
    options = world.options(route, summary=place, **options)
    given = {name: str(value) for name, value in options.items()}
    schema = StructType()
    for name in rows[0] if rows else ("id", "body", "due_at"):
        schema.add(name, KINDS.get(name, StringType()))
    writer = shipped(BatchWriter(plan_write(given, schema)))
    arrow = to_arrow_schema(schema, timezone="UTC")
    halves = [rows[: len(rows) // 2], rows[len(rows) // 2 :]]
    batches = [pa.RecordBatch.from_pylist(list(half), arrow) for half in halves]
    writer.commit([writer.write(iter([batch])) for batch in batches])
    return msgspec.json.decode(place.read_bytes(), type=Summary)


def read_by_hand(world: World, **options: Any) -> list[dict[str, Any]]:
    """Read the store as Spark's tasks would, one after another."""
    given = {} if "store" in options else {"config": world.config}
    given |= {name: str(value) for name, value in options.items()}
    reader = shipped(StoreReader(*plan_read(given)))
    batches = (batch for part in reader.partitions() for batch in reader.read(part))
    return [row for batch in batches for row in batch.to_pylist()]


def journal_by_hand(world: World, **options: Any) -> JournalStreamReader:
    given = {"config": world.config, "stream": "journal", **options}
    return JournalStreamReader(*plan_journal(given))
