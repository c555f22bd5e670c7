"""Batches of a stream: where one of the journal ends, and the figures of Spark's progress."""

from pathlib import Path
from typing import Any

import msgspec
import pytest
from pyspark.sql.streaming.datasource import ReadMaxRows

from duebridge.store.keys import Shard
from duebridge.store.numbering import Numbering
from duebridge_connectors.spark.listener import figures_of
from duebridge_connectors.spark.source.journal.offset import (
    JournalEnds,
    Offset,
    ShardOffset,
    planned,
)
from duebridge_connectors.spark.source.loader import Summary

QUIET, CALM, BUSY = SHARDS = [Shard("n", "r", number) for number in range(3)]


def test_limit_below_the_number_of_shards_leaves_none_unread() -> None:
    offset: Offset = {}
    for trigger in range(1, 1001):
        last = {QUIET: min(trigger, 200), CALM: min(trigger, 200), BUSY: 500}
        ends = {each: JournalEnds(1, last[each], Numbering(), "e") for each in SHARDS}
        offset = planned(offset, ends, ReadMaxRows(2))
        read = {each: ShardOffset.of(offset, each).until for each in SHARDS}
        assert read[BUSY] >= min(trigger // 2, 500), "it goes on beside those that have little"
    assert read == last


def test_limit_below_the_number_of_queues_that_never_drain_reads_each_in_turn() -> None:
    offset: Offset = {}
    for trigger in range(1, 31):
        last = {QUIET: 10 * trigger, CALM: 20 * trigger, BUSY: 500 * trigger}
        ends = {each: JournalEnds(1, last[each], Numbering(), "e") for each in SHARDS}
        offset = planned(offset, ends, ReadMaxRows(2))
    assert {ShardOffset.of(offset, each).until for each in SHARDS} == {20}


JUMP = 1_000_000


def progress(**source: Any) -> dict[str, Any]:
    read = {"numInputRows": 12, "processedRowsPerSecond": 4.0, **source}
    return {"id": "an-id", "name": None, "batchId": 7, "sources": [read],
            "durationMs": {"triggerExecution": 3000}}  # fmt: skip


@pytest.mark.parametrize(("end", "latest", "lag"), [
    ({"r/0": [1, 10], "r/1": [1, 5]}, {"r/0": [1, 14], "r/1": [1, 5]}, 4),
    ({"r/0": [1, 10]}, {"r/0": [1, 10], "new/0": [1, 3]}, 3),
    ({"r/0": [1, 10]}, {"r/0": [1, JUMP + 2, 12, JUMP]}, 5),
    ({"topic": {"0": 5, "1": 7}}, {"topic": {"0": 9, "1": 7}}, 4),
    ({"topic": {"0": 5}}, {"topic": {"0": 9, "1": 7}}, 11),
    ({"logOffset": 3}, {"logOffset": 4}, None),
    ("3", None, None),
])  # fmt: skip
def test_lag_is_what_waits_behind_the_batch(end: Any, latest: Any, lag: int | None) -> None:
    assert figures_of(progress(endOffset=end, latestOffset=latest)).lag == lag


def test_counts_are_those_of_the_batch(tmp_path: Path) -> None:
    written = Summary(route="r", accepted=9, refused=2, conflict=1)
    (tmp_path / "batch-000000007.json").write_bytes(msgspec.json.encode(written))
    found = figures_of(progress(), str(tmp_path))
    assert (found.query, found.batch, found.rows, found.rows_per_second) == ("an-id", 7, 12, 4.0)
    assert (found.counts, found.rejects, found.duration_ms) == (written, 3, 3000)


def test_rejects_are_unknown_without_a_summary(tmp_path: Path) -> None:
    assert figures_of(progress()).rejects is None
    assert figures_of(progress(), str(tmp_path)).rejects is None
