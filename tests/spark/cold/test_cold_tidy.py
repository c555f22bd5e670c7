"""What keeps a cold tier small: merges and sweeps, raced by jobs and killed anywhere."""

import json
import os
import random
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from duebridge.config.models import HOUR_MS
from duebridge.envelope import Envelope
from duebridge.errors import JobFailed
from duebridge.store.wire.record import pack
from duebridge_connectors.spark.cold import compaction, sweep
from duebridge_connectors.spark.cold.commit_log import (
    HYDRATED,
    SCHEDULED,
    STATE_EVERY,
    ColdLog,
    Commit,
    entry_name,
)
from duebridge_connectors.spark.cold.compaction import FEW, CompactionSummary, compact
from duebridge_connectors.spark.cold.parquet.files import write_table
from duebridge_connectors.spark.cold.parquet.id_filter import SUFFIX
from duebridge_connectors.spark.cold.parquet.row_groups import WantedRows, read_groups
from duebridge_connectors.spark.cold.parquet.slices import range_folder, range_of, read_slice
from duebridge_connectors.spark.cold.sweep import DAY_MS, LEFT_MS, SPENT_MS, SweepSummary
from duebridge_connectors.spark.cold.tier_state import VOID_LIST
from duebridge_connectors.spark.filesystem import open_filesystem
from duebridge_connectors.spark.rows.arrow import arrow_schema
from duebridge_connectors.spark.rows.schema import COLD
from tests.spark.cold_route import Killed, die

FIRST = 20_000 * DAY_MS
NOW = FIRST - 30 * DAY_MS
SCHEMA = arrow_schema(COLD)


@pytest.fixture
def log(tmp_path: Path) -> ColdLog:
    return ColdLog(str(tmp_path), "cold")


def write(log: ColdLog, batch: str, hours: Sequence[int]) -> str:
    """Write a file of a batch, with a row in each of these hours."""
    dues = sorted(FIRST + hour * HOUR_MS for hour in hours)
    rows = [
        {"id": f"{batch}-{due}", "batch": batch, "generation": 1, "due_at_ms": due, "blob": b"\0"}
        for due in dues
    ]
    file = f"batch={batch}/{range_folder(dues[0], dues[-1])}/a.parquet"
    write_table(log.root, file, pa.Table.from_pylist(rows, SCHEMA))
    return file


def add(log: ColdLog, batch: str, *hours: int) -> str:
    """Leave a batch of one file that counts."""
    file = write(log, batch, hours)
    assert log.commit(Commit(kind=SCHEDULED, batch=batch, at_ms=NOW, files=(file,)))
    return file


def take(log: ColdLog, batch: str, hour: int, **of: Any) -> None:
    taken = tuple(log.state().due_before(FIRST + hour * HOUR_MS))
    assert log.commit(Commit(kind=HYDRATED, batch=batch, at_ms=NOW, taken=taken, **of))


def ids(log: ColdLog) -> list[str]:
    """The ids of all rows that count, as a reader finds them."""
    files, root = open_filesystem(log.root)
    return sorted(
        each
        for file, from_ms, until_ms in map(read_slice, log.state().files)
        for part in read_groups(files, f"{root}/{file}", ["id"], WantedRows(from_ms, until_ms))
        for each in part.column(0).to_pylist()
    )


def age(log: ColdLog, *of: str, to_ms: int) -> None:
    for path in Path(log.root).rglob("*"):
        if path.is_file() and str(path.relative_to(log.root)).startswith(of):
            os.utime(path, ns=(to_ms * 10**6, to_ms * 10**6))


def there(log: ColdLog) -> set[str]:
    paths = (path for path in Path(log.root).rglob("*") if path.is_file())
    return {str(path.relative_to(log.root)) for path in paths}


def test_files_of_a_killed_job_go_a_day_later_and_no_others(log: ColdLog) -> None:
    kept, left = add(log, "B", 1), write(log, "K", [2])
    of_attempt = kept.replace("a.parquet", "b.parquet")
    Path(log.root, of_attempt).write_bytes(b"cut short")
    for name in ("_rejects/R/a.parquet", "pulled=P/a.parquet", "_commits/9.json.x.new", "mine.txt"):
        Path(log.root, name).parent.mkdir(parents=True, exist_ok=True)
        Path(log.root, name).write_text("")
    before = there(log)
    age(log, "", to_ms=NOW)
    assert sweep.sweep(log, NOW + LEFT_MS - 1) == SweepSummary()
    age(log, "batch=K/", to_ms=NOW + 1)
    swept = sweep.sweep(log, NOW + LEFT_MS)
    entries = {entry_name(1), entry_name(2)}
    assert there(log) == {kept, kept + SUFFIX, left, left + SUFFIX, *entries, "mine.txt"}
    assert swept == SweepSummary(left=3, entries=1)
    assert sweep.sweep(log, NOW + LEFT_MS + 1) == SweepSummary(left=2)
    assert before - there(log) == {
        *(of_attempt, left, left + SUFFIX),
        *("_rejects/R/a.parquet", "pulled=P/a.parquet", "_commits/9.json.x.new"),
    }
    assert not Path(log.root, "batch=K").exists()


def test_files_of_a_job_that_still_writes_stay_whole(log: ColdLog) -> None:
    write(log, "J", [1])
    age(log, "", to_ms=NOW)
    recent = write(log, "J", [2])
    age(log, recent, to_ms=NOW + LEFT_MS)
    assert sweep.sweep(log, NOW + LEFT_MS + 1) == SweepSummary()


def test_file_that_returned_is_kept_for_readers_and_goes_a_week_later(
    log: ColdLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, other = add(log, "B", 1), add(log, "C", 50)
    take(log, "H", 3)
    age(log, "", to_ms=0)
    assert sweep.sweep(log, NOW + SPENT_MS - 1) == SweepSummary()
    with monkeypatch.context() as killing:
        killing.setattr(ColdLog, "commit", die)
        with pytest.raises(Killed):
            sweep.sweep(log, NOW + SPENT_MS)
    assert log.state().spent == {file: NOW}
    assert sweep.sweep(log, NOW + SPENT_MS) == SweepSummary()
    assert (log.state().spent, log.state().files) == ({}, [other])
    assert {name for name in there(log) if "batch=" in name} == {other, other + SUFFIX}


def test_entries_go_once_a_later_one_has_the_state(log: ColdLog) -> None:
    files = [add(log, f"B{number}", number) for number in range(STATE_EVERY + 3)]
    assert sweep.sweep(log, NOW + SPENT_MS - 1).entries == 0
    assert sweep.sweep(log, NOW + SPENT_MS, 7).entries == 7
    assert sweep.sweep(log, NOW + SPENT_MS).entries == STATE_EVERY - 1 - 7
    assert log.numbers() == [*range(STATE_EVERY, STATE_EVERY + 4)]
    assert log.state().files == files
    files.append(add(log, "later", 5))
    assert log.state().files == files


def test_commits_of_an_earlier_version_go_once_they_are_taken_over(log: ColdLog) -> None:
    old = Path(log.root, "_commits", "A-scheduled.json")
    old.parent.mkdir(parents=True)
    name = "batch=A/due_date=2027-01-05/due_hour=13/part-0.parquet"
    old.write_text(json.dumps({"kind": SCHEDULED, "batch": "A", "at_ms": 1, "files": [name]}))
    assert sweep.sweep(log, NOW) == SweepSummary(), "taken over first"
    assert (old.exists(), log.taken_over()) == (True, ["_commits/A-scheduled.json"])
    late = old.with_name("B-scheduled.json")
    late.write_text(json.dumps({"kind": SCHEDULED, "batch": "B", "at_ms": 1}))
    assert sweep.sweep(log, NOW) == SweepSummary(spent=1)
    assert (old.exists(), late.exists()) == (False, True)
    assert sweep.sweep(log, NOW) == SweepSummary(spent=1)
    assert (late.exists(), log.state().files, log.state().earlier) == (False, [name], [])
    assert sweep.sweep(log, NOW) == SweepSummary()


def test_merge_makes_one_file_of_many_without_what_has_returned(log: ColdLog) -> None:
    for number in range(FEW + 1):
        add(log, f"B{number:02}", number, 100 + number, 8000)
    take(log, "H", 10)
    before = ids(log)
    assert compact(log, NOW) == CompactionSummary(files=FEW + 1)
    (file,) = log.state().files
    assert (ids(log), len(before)) == (before, 3 * (FEW + 1) - 10)
    assert compact(log, NOW) == CompactionSummary()
    take(log, "I", 110)
    assert len(ids(log)) == len(before) - 17
    assert Path(log.root, file + SUFFIX).exists()


def test_merge_of_few_or_large_files_does_nothing(
    log: ColdLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(FEW):
        add(log, f"B{number}", number)
    assert compact(log, NOW) == CompactionSummary()
    add(log, "one more", 7)
    monkeypatch.setattr(compaction, "SMALL_BYTES", 10)
    assert compact(log, NOW) == CompactionSummary()


def test_merge_beyond_memory_takes_a_part(log: ColdLog, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(FEW + 4):
        add(log, f"B{number}", number)
    before = ids(log)
    monkeypatch.setattr(compaction, "MEMORY_BYTES", 300)
    done = compact(log, NOW)
    assert 2 <= done.files < FEW + 4
    assert ids(log) == before


@pytest.mark.parametrize("stops", ["before its check", "after its check"])
@pytest.mark.parametrize("kind", ["files", "lists"])
def test_merge_that_stood_still_until_its_files_were_swept_does_not_count(
    log: ColdLog, monkeypatch: pytest.MonkeyPatch, kind: str, stops: str
) -> None:
    """Another job has had the lease since; what a later commit names must be there."""
    for number in range(FEW + 1):
        add(log, f"B{number:02}", number, 100)
        pull(log, f"P{number:02}", 100)
    monkeypatch.setattr(compaction, "_groups" if kind == "lists" else "_merge_lists", _nothing)
    before, is_lost = ids(log), []

    def sweep_meanwhile() -> None:
        if not is_lost:
            is_lost.append(True)
            age(log, "batch=merged", "pulled=merged", to_ms=NOW)
            assert sweep.sweep(log, NOW + LEFT_MS).left

    def check() -> None:
        if stops == "before its check":
            sweep_meanwhile()
        if is_lost:
            raise JobFailed("the lease of the cold tier ran out")
        sweep_meanwhile()

    with pytest.raises(JobFailed, match="the lease"):
        compact(log, NOW, check=check)
    assert ids(log) == before
    assert there(log) >= {*log.state().pulled}


def _nothing(*_: Any) -> Any:
    return []


@pytest.mark.parametrize("first", ["hydrate", "merge"])
def test_merge_and_hydrate_at_once_lose_and_double_nothing(
    log: ColdLog, monkeypatch: pytest.MonkeyPatch, first: str
) -> None:
    for number in range(FEW + 1):
        add(log, f"B{number:02}", number, 50)
    before = ids(log)
    taken = tuple(log.state().due_before(FIRST + 3 * HOUR_MS))
    hydrate = Commit(kind=HYDRATED, batch="H", at_ms=NOW, taken=taken)
    if first == "merge":
        compact(log, NOW)
        assert log.commit(hydrate)
        assert ids(log) == before, "as if it had been killed: it comes again, as duplicates"
        return
    real = compaction.write_table

    def overtaken(*given: Any) -> None:
        real(*given)
        log.commit(hydrate)

    monkeypatch.setattr(compaction, "write_table", overtaken)
    assert compact(log, NOW) == CompactionSummary()
    assert ids(log) == [each for each in before if int(each[4:]) >= FIRST + 3 * HOUR_MS]


def test_merge_of_files_of_an_earlier_version_keeps_every_column(log: ColdLog) -> None:
    drawn, files, rows = random.Random(5), [], []
    for hour in range(FEW + 1):
        begin = FIRST + hour * HOUR_MS
        at = datetime.fromtimestamp(begin / 1000, UTC)
        for number in range(3):
            blob = pack(Envelope.new(drawn.randbytes(9), delay="1h", headers=[("n", number)])).blob
            row = {name: drawn.randrange(100) for name in SCHEMA.names}
            row |= {"id": f"{hour}-{number}", "batch": "A", "content_hash": b"hash", "blob": blob}
            rows.append(row | {"due_at_ms": begin + drawn.randrange(HOUR_MS)})
        files.append(f"batch=A/due_date={at:%Y-%m-%d}/due_hour={at.hour}/part-0.parquet")
        Path(log.root, files[-1]).parent.mkdir(parents=True)
        pq.write_table(pa.Table.from_pylist(rows[-3:], SCHEMA), Path(log.root, files[-1]))
    old = {"kind": SCHEDULED, "batch": "A", "at_ms": 1, "files": files}
    Path(log.root, "_commits").mkdir()
    Path(log.root, "_commits", "A-scheduled.json").write_text(json.dumps(old))
    assert compact(log, NOW) == CompactionSummary(files=FEW + 1)
    (file,) = log.state().files
    assert range_of(file) == (FIRST, FIRST + (FEW + 1) * HOUR_MS)
    opened, root = open_filesystem(log.root)
    found = pa.concat_tables(read_groups(opened, f"{root}/{file}", SCHEMA.names)).to_pylist()
    assert found == sorted(rows, key=lambda row: (row["due_at_ms"], row["id"]))


def pull(log: ColdLog, run: str, *hours: int, name: str = "part-0.parquet") -> None:
    keys = [
        {"batch": "B", "id": f"{run}-{hour}", "generation": 1, "due_at_ms": FIRST + hour * HOUR_MS}
        for hour in hours
    ]
    file = f"pulled={run}/{name}"
    write_table(log.root, file, pa.Table.from_pylist(keys))
    take(log, run, 0, pulled=(file,))


def pulled(log: ColdLog) -> Iterator[str]:
    return listed(log, log.state().pulled)


def listed(log: ColdLog, lists: Sequence[str]) -> Iterator[str]:
    files, root = open_filesystem(log.root)
    for file in lists:
        for part in read_groups(files, f"{root}/{file}", ["id", "batch", "generation"]):
            yield from part.column("id").to_pylist()


def test_merge_of_lists_drops_rows_that_no_file_has_any_more(log: ColdLog) -> None:
    add(log, "B", *range(100))
    for number in range(FEW + 1):
        pull(log, f"P{number:02}", number, 60)
    take(log, "H", 10)
    done = compact(log, NOW)
    assert done == CompactionSummary(lists=FEW + 1)
    expected = [f"P{n:02}-60" for n in range(FEW + 1)] + [
        f"P{n:02}-{n}" for n in range(10, FEW + 1)
    ]
    assert (len(log.state().pulled), [*pulled(log)]) == (1, sorted(expected))
    assert len(log.state().spent) == FEW + 1


def test_merge_of_lists_keeps_void_rows_apart_from_those_that_returned(log: ColdLog) -> None:
    add(log, "B", *range(100))
    pull(log, "V", 50, 60, name=VOID_LIST)
    for number in range(FEW):
        pull(log, f"P{number:02}", 70)
    assert compact(log, NOW) == CompactionSummary(lists=FEW + 1)
    state = log.state()
    assert (len(state.pulled), [*listed(log, state.void)]) == (2, ["V-50", "V-60"])
    assert len([*pulled(log)]) == FEW + 2


def test_list_of_an_earlier_version_is_merged_and_kept(log: ColdLog) -> None:
    add(log, "B", *range(100))
    for number in range(FEW + 1):
        pull(log, f"P{number:02}", 1)
    for path in Path(log.root).rglob("pulled=*/*.parquet"):
        table = pa.Table.from_pylist([{"batch": "B", "id": path.parent.name, "generation": 1}])
        write_table(log.root, str(path.relative_to(log.root)), table)
    take(log, "H", 50)
    compact(log, NOW)
    assert len([*pulled(log)]) == FEW + 1


@pytest.mark.parametrize("seed", range(6))
def test_any_order_of_jobs_killed_anywhere_keeps_exactly_the_rows_that_are_cold(
    log: ColdLog, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    drawn, cold, clock, reached = random.Random(seed), set[str](), NOW, 0
    monkeypatch.setattr(compaction, "FEW", 3)
    monkeypatch.setattr(sweep, "LEFT_MS", 0)
    monkeypatch.setattr(sweep, "SPENT_MS", 0)
    for number in range(60):
        clock += HOUR_MS
        step = drawn.choice(["demote", "demote", "hydrate", "compact", "sweep"])
        is_killed = drawn.random() < 0.25
        with monkeypatch.context() as killing:
            if is_killed:
                killing.setattr(ColdLog, "commit", die)
            try:
                if step == "demote":
                    hours = drawn.sample(range(reached, reached + 300), 3)
                    add(log, f"B{number:02}", *hours)
                    cold |= {f"B{number:02}-{FIRST + hour * HOUR_MS}" for hour in hours}
                elif step == "hydrate":
                    until = reached + drawn.randrange(1, 30)
                    take(log, f"H{number}", until)
                    reached = until
                    cold = {each for each in cold if int(each[4:]) >= FIRST + until * HOUR_MS}
                elif step == "compact":
                    compact(log, clock, drawn.choice([1, None]))
                else:
                    age(log, "batch=", to_ms=0)
                    sweep.sweep(log, clock, drawn.choice([2, None]))
            except Killed:
                assert is_killed
        assert ids(log) == sorted(cold), f"after {step}, step {number}"
    age(log, "", to_ms=0)
    compact(log, clock)
    sweep.sweep(log, clock)
    named = {read_slice(name).file for name in log.state().files}
    assert {name for name in there(log) if name.endswith(".parquet")} == named
    assert len(named) <= 4
