"""Figures of a batch, out of Spark's progress and the counts of its writer."""

from pathlib import Path
from typing import Any

import msgspec
import pytest

from duebridge_connectors.spark.listener import figures_of
from duebridge_connectors.spark.source.loader import Summary

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
