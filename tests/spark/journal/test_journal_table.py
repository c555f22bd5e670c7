"""The journal's table: a batch is there once, whatever is killed or runs at once; taken over."""

import json
import os
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

from duebridge.errors import ConfigError, JobFailed
from duebridge_connectors.spark.jobs.tidy import run_tidy, tidy
from duebridge_connectors.spark.table import tidy_merge
from duebridge_connectors.spark.table.journal_files import write_files
from duebridge_connectors.spark.table.journal_table import JournalTable
from duebridge_connectors.spark.table.small_files import small_files
from tests.spark.journal.journal_by_hand import (
    AT,
    BATCHES,
    QUERY,
    add_batch,
    append,
    ids,
    journal_rows,
    killed,
    leave_landed,
    named,
    on_disk,
    take_over,
    tidy_now,
)
from tests.support.command import ENVIRONMENT, FORKS

APPENDED = ["a0", "a1", "a2", "b0", "b1", "b2"]


@pytest.fixture
def root(tmp_path: Path) -> str:
    return str(tmp_path / "journal")


@pytest.mark.parametrize("call", [1, 2])
@pytest.mark.parametrize("step", ["begun", "written", "commit"])
def test_append_killed_at_any_step_and_begun_again_has_every_row_once(
    root: str, step: str, call: int
) -> None:
    killed(append, root, step, call)
    append(root)
    assert ids(root) == APPENDED
    tidy_now(root)
    assert ids(root) == APPENDED
    assert on_disk(root) == named(root)


@pytest.mark.parametrize("step", ["rows merged", "merge committed", "vacuumed"])
def test_tidy_killed_at_any_step_and_begun_again_changes_no_row(root: str, step: str) -> None:
    append(root)
    killed(tidy_now, root, step, 1)
    assert ids(root) == APPENDED
    tidy_now(root)
    assert ids(root) == APPENDED
    assert on_disk(root) == named(root)
    assert len(named(root)) == 1


def test_table_without_rows_has_none_and_begins_with_any_query(root: str) -> None:
    made = JournalTable(root).begun(QUERY)
    made.complete(1_000)
    found = JournalTable(root).begun("another")
    assert (found.rows, found.files, found.complete_until_ms) == (0, 0, 1_000)
    assert run_tidy(root).merged_files == 0


def test_commit_of_a_batch_that_another_run_has_added_meanwhile_fails(root: str) -> None:
    table = JournalTable(root)
    mine, other = table.begun(QUERY), table.begun(QUERY)
    files = [list(write_files(root, AT.date(), [journal_rows("a")])) for _ in range(2)]
    other.commit(QUERY, 0, files[0])
    with pytest.raises(JobFailed, match="expected to be the only run of the job journal"):
        mine.commit(QUERY, 0, files[1])
    assert ids(root) == ["a"]


def test_begun_by_another_query_is_refused_once_there_are_rows(root: str) -> None:
    JournalTable(root).begun("killed before its first batch")
    add_batch(root, 0, "a")
    with pytest.raises(ConfigError, match="expected the checkpoint that it was written with"):
        add_batch(root, 0, "b", query="another")
    assert ids(root) == ["a"]


def test_complete_until_survives_a_checkpoint_and_never_goes_back(root: str) -> None:
    add_batch(root, 0, "a")
    at_once = JournalTable(root).existing()
    JournalTable(root).existing().complete(2_000)
    JournalTable(root).existing().complete(1_000)
    at_once.complete(1_500)
    tidy_now(root)
    found = JournalTable(root).existing()
    assert (found.complete_until_ms, found.batch(QUERY)) == (2_000, 0)


def test_table_is_of_the_oldest_protocol_and_its_log_has_statistics(root: str) -> None:
    rows = journal_rows("ab")
    later = journal_rows("c", "split", AT + timedelta(days=1, microseconds=-1_000))
    files = list(write_files(root, AT.date(), [rows, later]))
    version = JournalTable(root).begun(QUERY)
    version.commit(QUERY, 0, files)
    table = DeltaTable(root)
    protocol = table.protocol()
    assert (protocol.min_reader_version, protocol.min_writer_version) == (1, 2)
    found: Any = table.get_add_actions(flatten=True)
    logged = {name: found[name].to_pylist() for name in ("num_records", "min.route", "max.at")}
    by_day = sorted(zip(*logged.values(), strict=True))
    assert by_day == [(1, "split", AT + timedelta(days=1, microseconds=-1_000)), (2, "plain", AT)]
    of_a_day = pc.field("day") == (AT + timedelta(days=1)).date()
    assert table.to_pyarrow_table(filters=of_a_day)["id"].to_pylist() == ["c"]


def test_tidy_of_a_damaged_or_missing_file_names_it_and_merges_nothing(root: str) -> None:
    append(root)
    damaged = Path(root, max(named(root)))
    damaged.write_bytes(damaged.read_bytes()[:-4])
    with pytest.raises(JobFailed, match=f"{damaged.name}: expected a whole Parquet file"):
        tidy_now(root)
    damaged.unlink()
    with pytest.raises(JobFailed, match=f"{damaged.name}: expected a whole Parquet file"):
        tidy_now(root)
    assert len(named(root)) == BATCHES


def test_tidy_beside_a_batch_that_is_written_keeps_both(root: str) -> None:
    append(root)
    version = JournalTable(root).begun(QUERY)
    files = list(write_files(root, AT.date(), [journal_rows("z")]))
    assert run_tidy(root).merged_files == 3
    version.commit(QUERY, 3, files)
    assert ids(root) == [*APPENDED, "z"]


def test_tidy_of_files_that_another_run_has_merged_meanwhile_fails_and_keeps_every_row_once(
    root: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    append(root)
    real = tidy_merge._merged

    def merged_late(*given: Any) -> Any:
        monkeypatch.setattr(tidy_merge, "_merged", real)
        assert run_tidy(root).merged_files == 3
        return real(*given)

    monkeypatch.setattr(tidy_merge, "_merged", merged_late)
    with pytest.raises(JobFailed, match="expected to be the only run of the job tidy"):
        run_tidy(root)
    assert ids(root) == APPENDED


def test_tidy_leaves_a_file_with_other_columns_names_it_and_goes_on(root: str) -> None:
    append(root)
    odd = max(each for each in named(root) if each.startswith(f"day={AT.date()}"))
    found = pq.read_table(f"{root}/{odd}", partitioning=None)
    pq.write_table(found.drop_columns(["reason"]), f"{root}/{odd}")
    stray = Path(root, "stray.parquet")
    stray.write_bytes(b"")
    os.utime(stray, (1, 1))
    done = run_tidy(root)
    assert (done.merged_files, done.removed_files, stray.exists()) == (2, 1, False)
    assert done.left == [
        f"{odd}: expected the columns of the partition's other files (reason string); got less"
    ]
    assert f"left as it is: {odd}" in str(done)
    assert (odd in named(root), done.table_files) == (True, 2)


def test_tidy_merges_up_to_a_good_size_and_leaves_what_has_it(
    root: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    append(root)
    largest = max(each.size_bytes for each in small_files(DeltaTable(root)))
    monkeypatch.setattr(tidy_merge, "FILE_BYTES", 2 * largest)
    done = run_tidy(root)
    assert (done.merged_files, done.into_files, done.table_files) == (2, 1, 2)
    monkeypatch.setattr("duebridge_connectors.spark.table.small_files.SMALL_BYTES", 0)
    assert run_tidy(root).merged_files == 0
    found: Any = DeltaTable(root).get_add_actions(flatten=True)
    assert sorted(found["num_records"].to_pylist()) == [2, 4]
    assert set(found["max.at"].to_pylist()) == {AT}


def test_tidy_keeps_what_a_reader_may_still_read_and_removes_the_rest(root: str) -> None:
    append(root)
    older = DeltaTable(root)
    for each in on_disk(root):
        os.utime(f"{root}/{each}", (1, 1))  # old, but named until now
    left = Path(root, "day=2020-01-01", "left.parquet")
    left.parent.mkdir()
    left.touch()
    for each in (left, left.parent):
        os.utime(each, (1, 1))
    done = run_tidy(root)
    assert (done.merged_files, done.into_files, done.table_files) == (3, 1, 1)
    (merged,) = named(root)
    assert pq.ParquetFile(f"{root}/{merged}").num_row_groups == 1
    assert not left.exists()
    assert older.to_pyarrow_table().num_rows == len(APPENDED)
    assert tidy(root, 0).removed_files == 3
    assert on_disk(root) == named(root)


def test_tidy_for_less_than_an_hour_or_without_a_table_is_refused(root: str) -> None:
    with pytest.raises(ConfigError, match="keep: expected at least 1h; got 59m"):
        run_tidy(root, keep="59m")
    with pytest.raises(ConfigError, match="expected a Delta table; got none"):
        run_tidy(root)


LANDED = [
    (AT.date(), "plain", journal_rows("ab")),
    (AT.date(), "a%2Fb", journal_rows("c", "a/b")),
    (AT.date() + timedelta(days=1), "plain", journal_rows("d", at=AT + timedelta(days=1))),
]


def rows_of(root: str) -> list[dict[str, Any]]:
    found = DeltaTable(root).to_pyarrow_table()
    return sorted(found.drop_columns(["day"]).to_pylist(), key=lambda row: str(row["id"]))


def test_take_over_brings_every_row_of_the_newest_manifest_as_it_was(root: str) -> None:
    leave_landed(root, LANDED[:1], batch=3)
    leave_landed(root, LANDED, batch=4)
    Path(root, "day=2026-03-01", "route=plain", "orphan.parquet").write_bytes(b"killed")
    with pytest.raises(ConfigError, match="--take-over"):
        JournalTable(root).existing()
    take_over(root)
    assert rows_of(root) == [row for _, _, rows in LANDED for row in rows.to_pylist()]
    found = JournalTable(root).existing()
    assert (found.batch(QUERY), found.complete_until_ms) == (4, 1004)
    take_over(root)
    assert ids(root) == [*"abcd"]
    tidy_now(root)
    assert on_disk(root) == named(root)
    assert not list(Path(root).glob("day=*/route=*"))


@pytest.mark.parametrize("step", ["begun", "rewritten", "commit", "appended"])
def test_take_over_killed_at_any_step_and_begun_again_has_every_row_once(
    root: str, step: str
) -> None:
    leave_landed(root, LANDED, batch=4)
    killed(take_over, root, step, 1)
    with pytest.raises(ConfigError, match="--take-over"):
        JournalTable(root).existing()
    take_over(root)
    assert ids(root) == [*"abcd"]
    tidy_now(root)
    assert on_disk(root) == named(root)


def test_take_over_killed_while_it_removes_manifests_adds_nothing_again(root: str) -> None:
    leave_landed(root, LANDED, batch=4)
    take_over(root)
    leave_landed(root, LANDED[:2], batch=3)  # as an older manifest that is left
    take_over(root)
    assert ids(root) == [*"abcd"]


def test_take_over_after_an_old_job_went_on_brings_what_it_wrote(root: str) -> None:
    leave_landed(root, LANDED[:2], batch=3)
    take_over(root)
    leave_landed(root, LANDED[2:], batch=4)
    take_over(root)
    assert ids(root) == [*"abcd"]


def test_take_over_of_a_damaged_file_names_it_and_changes_nothing(root: str) -> None:
    leave_landed(root, LANDED, batch=4)
    damaged = next(Path(root).glob("day=2026-03-02/**/*.parquet"))
    damaged.write_bytes(b"no Parquet")
    with pytest.raises(ConfigError, match=f"{damaged.name}: expected a Parquet file"):
        take_over(root)
    assert Path(root, "_manifests").exists()


def test_take_over_where_there_is_no_table_changes_nothing(root: str) -> None:
    take_over(root)
    assert not Path(root).exists()


def test_tidy_by_the_command_says_what_it_did_and_starts_no_spark(
    root: str, tmp_path: Path
) -> None:
    append(root)
    words = ["spark", "tidy", root, "--keep", "2d", "--output", "json"]
    done = FORKS.run(words, b"", tmp_path, {**ENVIRONMENT, "PATH": "/nowhere"}, 240.0)
    assert done[0] == 0, done
    assert json.loads(done[1]) == {
        "table": root,
        "merged_files": 3,
        "into_files": 1,
        "removed_files": 0,
        "table_files": 1,
        "left": [],
    }
