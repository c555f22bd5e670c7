"""The log of the cold tier: writers at once, killed ones, long ones and those of version 0.2."""

import json
import os
import random
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from itertools import pairwise
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import msgspec
import pytest

from duebridge.config.models import HOUR_MS
from duebridge.errors import JobFailed
from duebridge_connectors.spark.cold import commit_log
from duebridge_connectors.spark.cold.commit_log import (
    COMPACTED,
    DEMOTED,
    HYDRATED,
    REMOVED,
    SCHEDULED,
    STATE_EVERY,
    SWEPT,
    ColdLog,
    Commit,
    entry_name,
)
from duebridge_connectors.spark.cold.parquet.slices import FileSlice, range_folder, range_of
from tests.spark.cold_route import Killed, die

DAY = 24 * HOUR_MS
FIRST = 20_000 * DAY


@pytest.fixture
def log(tmp_path: Path) -> ColdLog:
    return ColdLog(str(tmp_path), "cold")


def file_of(batch: str, days: int = 1, first: int = 0) -> str:
    begin = FIRST + first * DAY
    return f"batch={batch}/{range_folder(begin, begin + days * DAY - 1)}/a.parquet"


def scheduled(batch: str, *files: str) -> Commit:
    return Commit(kind=SCHEDULED, batch=batch, at_ms=1, files=files or (file_of(batch),))


def hydrated(batch: str, *taken: str, **of: Any) -> Commit:
    return Commit(kind=HYDRATED, batch=batch, at_ms=of.pop("at_ms", 2), taken=taken, **of)


def test_due_before_and_due_from_divide_every_file_at_a_full_hour(log: ColdLog) -> None:
    file = file_of("B", days=3)
    log.commit(scheduled("B", file))
    at = FIRST + 30 * HOUR_MS
    state = log.state()
    assert state.due_before(FIRST) == []
    assert state.due_before(at - 7) == [f"{file}#0-{at}"]
    assert state.due_from(at - 7) == [f"{file}#{at}-0"]
    assert state.due_before(FIRST + 3 * DAY) == [file]
    assert state.due_from(FIRST + 3 * DAY) == []


def test_slices_that_are_taken_one_after_another_end_the_file(log: ColdLog) -> None:
    file = file_of("B", days=3)
    log.commit(scheduled("B", file))
    seen = []
    for hour in (5, 6, 30, 72):
        taken = log.state().due_before(FIRST + hour * HOUR_MS)
        seen.append([range_of(name) for name in taken])
        log.commit(hydrated(f"H{hour}", *taken))
    edges = [FIRST + hour * HOUR_MS for hour in (0, 5, 6, 30, 72)]
    assert seen == [[pair] for pair in pairwise(edges)]
    assert (log.state().files, [*log.state().spent]) == ([], [file])


def test_hydrate_that_another_overtook_brings_nothing_back(log: ColdLog) -> None:
    file = file_of("B", days=3)
    log.commit(scheduled("B", file))
    early, late = (log.state().due_before(FIRST + hour * HOUR_MS) for hour in (5, 9))
    assert log.commit(hydrated("late", *late))
    assert log.commit(hydrated("early", *early))
    assert log.state().files == [str(FileSlice(file, FIRST + 9 * HOUR_MS))]
    assert log.commit(hydrated("all", file))
    assert log.commit(hydrated("late again", *late))
    assert log.state().files == []


def test_removal_of_a_batch_that_is_finished_does_not_count_twice(log: ColdLog) -> None:
    log.commit(Commit(kind=DEMOTED, batch="B", at_ms=1, files=(file_of("B"),)))
    assert (log.state().files, len(log.state().unfinished)) == ([], 1)
    assert log.commit(Commit(kind=REMOVED, batch="B", at_ms=2))
    assert not log.commit(Commit(kind=REMOVED, batch="B", at_ms=3))
    assert (log.state().files, log.state().unfinished) == ([file_of("B")], [])
    assert len(log.commits()) == 2


def test_merge_of_files_that_changed_meanwhile_is_refused(log: ColdLog) -> None:
    old, new = file_of("B", days=3), file_of("M", days=3)
    log.commit(scheduled("B", old))
    merge = Commit(kind=COMPACTED, batch="M", at_ms=3, files=(new,), taken=(old,))
    log.commit(hydrated("H", f"{old}#0-{FIRST + HOUR_MS}"))
    assert not log.commit(merge)
    rest = f"{old}#{FIRST + HOUR_MS}-0"
    assert log.commit(msgspec.structs.replace(merge, taken=(rest,)))
    assert not log.commit(msgspec.structs.replace(merge, batch="N", taken=(rest,)))
    assert log.state().files == [new]


def test_commits_of_many_writers_at_once_all_count(log: ColdLog, tmp_path: Path) -> None:
    with ProcessPoolExecutor(4, get_context("fork")) as pool:
        done = [pool.submit(write_many, str(tmp_path), f"w{number}") for number in range(4)]
        assert all(each.result() for each in done)
    assert log.numbers() == [*range(1, 81)]
    assert {*log.state().files} == {file_of(f"w{n}-{k}") for n in range(4) for k in range(20)}


def write_many(path: str, name: str) -> bool:
    log = ColdLog(path, "cold")
    return all(log.commit(scheduled(f"{name}-{number}")) for number in range(20))


def test_writer_killed_at_any_point_leaves_a_log_that_goes_on(
    log: ColdLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    log.commit(scheduled("A"))
    for step in ("fsync", "link"):
        with monkeypatch.context() as killing:
            killing.setattr(os, step, die)
            with pytest.raises(Killed):
                log.commit(scheduled(step))
        assert log.state().files == [file_of("A")]
    log.commit(scheduled("B"))
    assert (log.numbers(), log.state().files) == ([1, 2], [file_of("A"), file_of("B")])


def test_commit_whose_reply_was_lost_counts_once(
    log: ColdLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = commit_log.create_file
    monkeypatch.setattr(commit_log, "create_file", lambda *given: real(*given) and False)
    assert log.commit(scheduled("A"))
    assert (log.numbers(), log.state().files) == ([1], [file_of("A")])


def test_state_of_a_long_log_is_that_of_all_its_commits_and_reads_few(
    log: ColdLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn = random.Random(7)
    expected: dict[str, int] = {}
    for number in range(3 * STATE_EVERY):
        if drawn.random() < 0.5 or not expected:
            file = file_of(f"B{number}", days=2)
            log.commit(scheduled(f"B{number}", file))
            expected[file] = 0
        else:
            until = drawn.choice([0, FIRST + drawn.randrange(1, 48) * HOUR_MS])
            file = drawn.choice([*expected])
            log.commit(hydrated(f"H{number}", str(FileSlice(file, 0, until))))
            expected[file] = max(expected[file], until)
            if not until:
                del expected[file]
        assert log.state().returned == expected
    read: list[str] = []
    real = ColdLog._decoded
    monkeypatch.setattr(
        ColdLog, "_decoded", lambda *given: [read.append(given[1]), real(*given)][1]
    )
    log.state()
    assert len(read) <= STATE_EVERY
    for number in range(1, 2 * STATE_EVERY):
        Path(log.root, entry_name(number)).unlink()
    assert log.state().returned == expected


def test_log_without_one_of_its_entries_is_not_read(log: ColdLog) -> None:
    for name in "ABC":
        log.commit(scheduled(name))
    Path(log.root, entry_name(2)).unlink()
    with pytest.raises(JobFailed, match=r"expected all entries.*0002\.json"):
        log.state()


def test_damaged_entry_is_named(log: ColdLog) -> None:
    log.commit(scheduled("A"))
    Path(log.root, entry_name(1)).write_text("{")
    with pytest.raises(JobFailed, match=r"0001\.json: expected a commit"):
        log.state()


def test_writer_that_stood_still_until_its_number_was_swept_changes_nothing(
    log: ColdLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    log.commit(scheduled("A"))
    stale = log._end()
    for number in range(STATE_EVERY):
        log.commit(scheduled(f"B{number}"))
    for number in range(1, STATE_EVERY):
        Path(log.root, entry_name(number)).unlink()
    with pytest.raises(JobFailed, match="stood still for days"):
        log._append(stale, scheduled("late"))
    assert file_of("late") not in log.state().files


HOUR_FILE = "batch={}/due_date=2027-01-05/due_hour=13/part-0.parquet"


@pytest.fixture
def earlier(log: ColdLog) -> Iterator[Path]:
    """The commits of version 0.2: A removed, B not yet, C taken, and one row pulled."""
    folder = Path(log.root, "_commits")
    folder.mkdir(parents=True)
    for name, kind, more in (
        ("A", DEMOTED, {"files": [HOUR_FILE.format("A")]}),
        ("A", REMOVED, {"removed": 1}),
        ("B", DEMOTED, {"files": [HOUR_FILE.format("B")]}),
        ("C", SCHEDULED, {"files": [HOUR_FILE.format("C")]}),
        ("H", HYDRATED, {"taken": [HOUR_FILE.format("C")], "pulled": ["pulled=H/a.parquet"]}),
    ):
        leave(folder, name, kind, **more)
    return folder


def leave(folder: Path, name: str, kind: str, **more: Any) -> None:
    text = json.dumps({"kind": kind, "batch": name, "at_ms": 5, **more})
    (folder / f"{name}-{kind}.json").write_text(text)


def test_log_of_an_earlier_version_counts_as_it_is(log: ColdLog, earlier: Path) -> None:
    state = log.state()
    assert state.files == [HOUR_FILE.format("A")]
    assert [batch.batch for batch in state.unfinished] == ["B"]
    assert state.pulled == ["pulled=H/a.parquet"]
    assert range_of(state.files[0]) == (1799154000000, 1799157600000)


def test_log_of_an_earlier_version_is_taken_over_by_the_first_writer(
    log: ColdLog, earlier: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = log.state()
    with monkeypatch.context() as killing:
        killing.setattr(os, "link", die)
        with pytest.raises(Killed):
            log.commit(scheduled("N"))
    assert log.state() == before
    log.commit(scheduled("N"))
    assert log.state().files == [HOUR_FILE.format("A"), file_of("N")]
    assert len(log.state().earlier) == 5
    leave(earlier, "B", REMOVED)  # a job of that version was still under way
    log.commit(scheduled("O"))
    files = [HOUR_FILE.format("A"), file_of("N"), HOUR_FILE.format("B"), file_of("O")]
    assert sorted(log.state().files) == sorted(files)
    swept = tuple(log.state().earlier)
    log.commit(Commit(kind=SWEPT, batch="S", at_ms=9, swept=swept))
    for name in swept:
        Path(log.root, name).unlink()
    assert sorted(log.state().files) == sorted(files)
    assert (log.state().earlier, log.state().pulled) == ([], ["pulled=H/a.parquet"])


def test_commit_checks_again_after_another_writer_was_first(log: ColdLog) -> None:
    checks: list[int] = []

    def check() -> None:
        checks.append(len(log.numbers()))
        if len(checks) == 1:
            log.commit(Commit(kind=SWEPT, batch="", at_ms=1))

    assert log.commit(Commit(kind=HYDRATED, batch="B", at_ms=2), check)
    assert checks == [0, 1]


def test_commit_whose_check_fails_writes_nothing(log: ColdLog) -> None:
    def fail() -> None:
        raise JobFailed("lost")

    with pytest.raises(JobFailed, match="lost"):
        log.commit(Commit(kind=HYDRATED, batch="B", at_ms=2), fail)
    assert log.numbers() == []
