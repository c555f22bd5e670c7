"""What an earlier version left on disk is gone on with: as it was recorded, written out by hand.

A text here that has to be changed is a promise broken: somebody's checkpoint has the old one.
"""

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812 - everybody's name for it

from duebridge.errors import ConfigError
from duebridge.store.cold.notes import ColdNotes
from duebridge_connectors.spark.jobs.intake import Intake, run_intake
from duebridge_connectors.spark.jobs.journal import read_journal, run_journal
from duebridge_connectors.spark.kafka_source import topic_of
from duebridge_connectors.spark.rows.arrow import arrow_schema
from duebridge_connectors.spark.rows.ids import derive_id
from duebridge_connectors.spark.rows.schema import COLD, JOURNAL
from duebridge_connectors.spark.transforms.letters import replay_envelopes
from tests.spark.by_hand import write_by_hand
from tests.spark.cold_route import ColdRoute
from tests.spark.source.test_records import letter, letters
from tests.spark.world import LATER_MS, Sent, Topics, World

QUERY = "bf457969-92c7-4b3b-962a-7a39ccf9ffab"
BATCH = {"batchWatermarkMs": 0, "batchTimestampMs": 1795322511397}
SETTINGS = {
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.streaming.multipleWatermarkPolicy": "min",
    "spark.sql.streaming.stateStore.compression.codec": "lz4",
}
DONE = 'v1\n{"nextBatchWatermarkMs":0}'


def leave(root: Path, files: Mapping[str, str]) -> None:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def checkpoint(offsets: object) -> dict[str, str]:
    """What Spark keeps of a query that has one batch behind it, up to these offsets."""
    told = json.dumps(offsets)
    return {
        "metadata": f'{{"id":"{QUERY}"}}',
        "offsets/0": f"v1\n{json.dumps({**BATCH, 'conf': SETTINGS})}\n{told}",
        "commits/0": DONE,
    }


def test_run_journal_goes_on_with_a_table_and_a_checkpoint_of_an_earlier_version(
    world: World,
) -> None:
    table = world.home / "journal"
    world.accept("plain", "a", "b", "c")
    file = "day=2026-11-22/route=plain/part-00000-922d82ba.c000.snappy.parquet"
    rows = [{"kind": "accepted", "id": name, "shard": 0, "sequence": 1} for name in "ab"]
    schema = arrow_schema(JOURNAL)
    (table / file).parent.mkdir(parents=True)
    without_route = pa.Table.from_pylist(rows, schema).drop_columns(["route"])
    pq.write_table(without_route, table / file)
    known = {"path": file, "rows": 2, "size_bytes": (table / file).stat().st_size}
    manifest = {"version": 1, "query": QUERY, "batch": 0, "files": [known], "retired": []}
    leave(table, {"_manifests/000000000001.json": json.dumps(manifest)})
    leave(table / "_checkpoint", checkpoint({"plain/0": [1, 2]}))
    given = {"config": world.config, "route": "plain"}
    with pytest.raises(ConfigError, match=r"expected a Delta table; got one of duebridge 0\.2\.0"):
        run_journal(world.spark, str(table), **given)
    done = run_journal(world.spark, str(table), takes_over=True, **given)
    assert (done.rows, done.table_rows) == (1, 3)
    found = read_journal(world.spark, str(table)).select("route", "id").collect()
    assert sorted(map(tuple, found)) == [("plain", "a"), ("plain", "b"), ("plain", "c")]


def test_intake_goes_on_with_a_checkpoint_of_an_earlier_version(
    world: World, topics: Topics
) -> None:
    topic = topics.make()
    topics.fill(topic, [Sent(b"%d" % n, partition=n % 2) for n in range(4)])
    options = {"kafka.bootstrap.servers": topics.bootstrap}
    place = world.home / "checkpoint"
    of_topic = place / topic_of(world.spark, options, topic).id
    leave(of_topic, checkpoint({topic: {"0": 2, "1": 1}}))
    leave(of_topic, {"sources/0/0": "\0" + f"v1\n{json.dumps({topic: {'0': 0, '1': 0}})}"})
    wanted = Intake(topic=topic, checkpoint=str(place), columns={"due_at": str(LATER_MS)})
    done = run_intake(world.spark, wanted, **world.options("plain"))
    assert (done.is_made_anew, done.rows.accepted) == (False, 1)
    assert world.ids("plain") == {f"{of_topic.name}:1:1"}


def test_hydrate_brings_back_what_an_earlier_version_made_cold(cold: ColdRoute) -> None:
    world = cold.world
    world.producer().get("cold", "absent")  # opens the route
    notes = ColdNotes(world.connection, world.store("cold").shard)
    rows = [_cold(world, name, notes.new_generation()) for name in ("a", "b")]
    root = world.home / "cold" / "route=cold"
    at = datetime.fromtimestamp(LATER_MS / 1000, UTC)
    hour = {"due_date": F.lit(at.date()), "due_hour": F.lit(at.hour)}
    written = world.spark.createDataFrame(rows, COLD).withColumns(hour).coalesce(1).write
    written.partitionBy(*hour).parquet(f"{root}/batch=B", compression="zstd")
    (file,) = root.glob("batch=B/**/*.parquet")
    commit = {"batch": "B", "at_ms": 1795322468323, "rows": 2, "checksum": "-4893240934850323"}
    files = [str(file.relative_to(root))]
    removed = {"kind": "removed", "batch": "B", "at_ms": 1795322471941, "rows": 2, "removed": 2}
    demoted = {"kind": "demoted", **commit, "files": files}
    commits = {"B-demoted.json": json.dumps(demoted), "B-removed.json": json.dumps(removed)}
    leave(root / "_commits", commits)
    cold.reach(hours=1)
    done = cold.hydrate()
    assert (done.accepted, done.left) == (2, 0)
    assert world.due("cold", "b") == LATER_MS


def _cold(world: World, name: str, generation: int) -> tuple[Any, ...]:
    """A row as the tier has it, by way of another route that the store still has."""
    write_by_hand(world, [{"id": name, "body": name, "due_at": LATER_MS}])
    _, record = world.record("plain", name)
    due = (LATER_MS, 1, 0, 0, generation)
    return (name, "B", 0, *due, bytearray(record.content_hash), bytearray(record.blob))


def test_ids_that_are_derived_are_those_of_earlier_versions(spark: SparkSession) -> None:
    assert derive_id(("order", 42, b"x", True), "abcd") == "ajv66v3bnl2fcolpon5u"
    (row,) = replay_envelopes(letters(spark, letter()), {}).collect()
    assert row["id"] == "replay-e1bd55ece1573ea101a48c9a"
