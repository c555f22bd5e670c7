"""What people are told of cold envelopes: read by Arrow alone, bound by what the store says."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from duebridge.config.models import HOUR_MS
from duebridge.store.cold import ColdNotes
from duebridge_connectors.spark.cold.commit_log import (
    DEMOTED,
    HYDRATED,
    REMOVED,
    ColdLog,
    Commit,
    boundary_ms,
)
from tests.spark.world import LATER_MS, World

HOUR = LATER_MS // HOUR_MS * HOUR_MS


@pytest.fixture
def log(world: World) -> ColdLog:
    return ColdLog(f"{world.home}/cold", "cold")


def batch(log: ColdLog, name: str, *ids: str, hour: int = 0, finished: bool = True) -> str:
    """Leave a batch of one file as demote does; returns the file."""
    day, of_day = divmod(HOUR + hour * HOUR_MS, 24 * HOUR_MS)
    date = pa.scalar(day, pa.int32()).cast(pa.date32()).as_py()
    file = f"batch={name}/due_date={date}/due_hour={of_day // HOUR_MS}/part-0.parquet"
    due = HOUR + hour * HOUR_MS
    rows = [
        {"id": row_id, "batch": name, "generation": 5, "due_at_ms": due + number,
         "scheduled_at_ms": 7, "expires_at_ms": 0}
        for number, row_id in enumerate(ids)
    ]  # fmt: skip
    _write(f"{log.root}/{file}", pa.Table.from_pylist(rows))
    log.commit(Commit(kind=DEMOTED, batch=name, at_ms=1, rows=len(ids), files=(file,)))
    if finished:
        log.commit(Commit(kind=REMOVED, batch=name, at_ms=2))
    return file


def _write(path: str, rows: pa.Table) -> None:
    Path(path).parent.mkdir(parents=True)
    pq.write_table(rows, path)


def listed(world: World, *words: str) -> list[str]:
    done = world.command("ls", "cold", "--state", "cold", "--output", "json", *words)
    assert done.code == 0, done.err
    return [each["id"] for each in done.json_lines()]


def test_get_and_ls_of_the_cold_obey_what_was_recorded(world: World, log: ColdLog) -> None:
    store = world.store("cold", 0, cold_tier_ms=1 << 40)
    for number in (0, 1):
        notes = ColdNotes(world.connection, world.store("cold", number).shard)
        for _ in range(5):
            notes.new_generation()
    batch(log, "B", "cancelled", "moved", "kept")
    producer = world.producer()
    assert producer.cancel("cold", "cancelled") == "recorded"
    assert producer.reschedule("cold", "moved", at=HOUR + 99) == "recorded"
    for name, due in (("moved", HOUR + 99), ("kept", HOUR + 2)):
        done = world.command("get", "cold", name, "--output", "json")
        assert (done.code, done.json()["state"], done.json()["due_at_ms"]) == (0, "cold", due)
    assert world.command("get", "cold", "cancelled").code == 1
    assert world.command("get", "cold", "absent").code == 1
    assert listed(world) == ["moved", "kept"]
    assert store.next().pending == 0


def test_ls_of_the_cold_is_in_order_within_its_window_and_limit(world: World, log: ColdLog) -> None:
    batch(log, "B", "c", "d", hour=1)
    batch(log, "C", "a", "b")
    assert listed(world) == ["a", "b", "c", "d"]
    assert listed(world, "--limit", "2") == ["a", "b"]
    window = ["--due-after", str(HOUR + 1), "--due-before", str(HOUR + HOUR_MS)]
    assert listed(world, *window) == ["b", "c"]


def test_ls_leaves_out_what_does_not_count(world: World, log: ColdLog) -> None:
    taken, waits = batch(log, "B", "taken"), batch(log, "C", "pulled", "waits")
    batch(log, "D", "still in the store", finished=False)
    pulled = [{"id": "pulled", "batch": "C", "generation": 5}]
    _write(f"{log.root}/pulled=E/part-0.parquet", pa.Table.from_pylist(pulled))
    used = {"taken": (taken,), "pulled": ("pulled=E/part-0.parquet",)}
    log.commit(Commit(kind=HYDRATED, batch="E", at_ms=3, **used))
    assert listed(world) == ["waits"]
    assert log.state().due_before(HOUR) == []
    assert log.state().due_before(HOUR + 1) == [waits]


def test_ls_of_a_tier_that_is_empty_or_absent_is_empty(world: World) -> None:
    assert listed(world) == []
    assert world.command("ls", "plain", "--state", "cold", "--output", "json").out == ""


def test_get_where_files_cannot_be_read_says_which_setting(world: World, log: ColdLog) -> None:
    batch(log, "B", "a")
    next(Path(log.root).rglob("*.parquet")).write_bytes(b"no parquet")
    done = world.command("get", "cold", "a")
    assert done.code == 2
    assert "routes.cold.cold_tier.path: cannot be read" in done.err


@pytest.mark.parametrize(("now", "expected"), [(0, 2), (1, 3), (HOUR_MS, 3), (HOUR_MS + 1, 4)])
def test_boundary_is_the_next_full_hour_behind_the_horizon(now: int, expected: int) -> None:
    assert boundary_ms(now, 2 * HOUR_MS) == expected * HOUR_MS
