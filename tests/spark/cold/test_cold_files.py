"""The files of the cold tier, as tasks write, read and merge them."""

import os
import stat
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql.types import StructType

from duebridge.config.models import HOUR_MS
from duebridge.errors import JobFailed
from duebridge.store.routing import shard_number
from duebridge_connectors.spark.cold import compaction
from duebridge_connectors.spark.cold.commit_log import (
    HYDRATED,
    SCHEDULED,
    ColdLog,
    Commit,
    boundary_ms,
)
from duebridge_connectors.spark.cold.compaction import FEW, compact
from duebridge_connectors.spark.cold.parquet import files as parquet_files
from duebridge_connectors.spark.cold.parquet.files import (
    ColdBatch,
    ColdRead,
    read_files,
    write_files,
    write_table,
)
from duebridge_connectors.spark.cold.parquet.slices import FileSlice, range_of
from duebridge_connectors.spark.filesystem import create_file, write_file
from duebridge_connectors.spark.rows.arrow import arrow_schema
from duebridge_connectors.spark.rows.schema import COLD
from duebridge_connectors.spark.transforms.cold_copies import HOUR
from tests.spark.cold_route import ColdRoute, Killed, die, listed
from tests.spark.world import World

SCHEMA = arrow_schema(COLD).append(pa.field(HOUR, pa.int64()))
FIRST = 500_000  # the hour that rows begin in, since the epoch
Synced = dict[Path, set[str]]


def batches(*hours: int, rows: int = 3, blob: bytes = b"body") -> list[pa.RecordBatch]:
    """Return so many rows of each hour, two rows a batch."""
    found = [
        {"id": f"{hour}-{number}", "batch": "B", "shard": number, "generation": number + 1,
         "due_at_ms": (FIRST + hour) * HOUR_MS + number, "content_hash": b"h", "blob": blob,
         HOUR: FIRST + hour}
        for hour in hours
        for number in range(rows)
    ]  # fmt: skip
    made: list[pa.RecordBatch] = pa.Table.from_pylist(found, SCHEMA).to_batches(2)
    return made


def written(root: Path, rows: Sequence[pa.RecordBatch]) -> dict[str, int]:
    done = write_files(ColdBatch(str(root), "B"), iter(rows))
    return {row["file"]: row["rows"] for batch in done for row in batch.to_pylist()}


def read_batches(
    root: Path,
    files: Sequence[str],
    *columns: str,
    ids: Sequence[str] | None = None,
    share: int = 0,
    shares: int = 1,
    shards: int = 0,
) -> list[pa.RecordBatch]:
    types = StructType([COLD[name] for name in columns or COLD.names])
    parts = {"file": list(files), "share": [share] * len(files)}
    wanted = ColdRead(str(root), types, ids, shares, shards)
    return list(read_files(wanted, iter([pa.RecordBatch.from_pydict(parts)])))


def read(root: Path, files: Sequence[str], *columns: str, **of: Any) -> list[dict[str, Any]]:
    return [row for batch in read_batches(root, files, *columns, **of) for row in batch.to_pylist()]


def test_write_gives_the_rows_of_many_hours_one_file_that_names_them(tmp_path: Path) -> None:
    (file,) = found = written(tmp_path, batches(0, 1, 30))
    assert found == {file: 9}
    assert [at // HOUR_MS - FIRST for at in range_of(file)] == [0, 31]
    rows = [row for batch in batches(0, 1, 30) for row in batch.drop_columns([HOUR]).to_pylist()]
    assert read(tmp_path, [file]) == rows


def test_write_of_more_than_memory_has_makes_files_of_its_parts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parquet_files, "FILE_BYTES", 1000)
    found = written(tmp_path, batches(0, rows=5, blob=bytes(600)))
    assert list(found.values()) == [2, 2, 1]
    assert len({range_of(file).from_ms for file in found}) == 1


def test_write_of_no_rows_makes_no_file(tmp_path: Path) -> None:
    assert written(tmp_path, []) == {}
    empty = pa.RecordBatch.from_pylist([], SCHEMA)
    assert written(tmp_path, [empty]) == {}


def test_read_of_a_slice_reads_the_row_groups_of_its_hours_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parquet_files, "GROUP_ROWS", 3)
    (file,) = written(tmp_path, batches(0, 1, 2, 30))
    real, groups = pq.ParquetFile.read_row_group, set()

    def noted(self: Any, number: int, columns: Any) -> Any:
        groups.add(number)
        return real(self, number, columns)

    monkeypatch.setattr(pq.ParquetFile, "read_row_group", noted)
    bounds = [(FIRST + hour) * HOUR_MS for hour in (1, 2)]
    found = read(tmp_path, [str(FileSlice(file, *bounds))], "id")
    assert (found, groups) == ([{"id": f"1-{number}"} for number in range(3)], {1})
    later = read(tmp_path, [str(FileSlice(file, bounds[1] + 1))], "id")
    assert [row["id"] for row in later] == ["2-1", "2-2", "30-0", "30-1", "30-2"]


def test_read_of_shares_gives_each_row_of_a_file_to_one_of_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parquet_files, "GROUP_ROWS", 2)
    (file,) = written(tmp_path, batches(0, 1, 30))
    found = [read(tmp_path, [file], "id", share=share, shares=3) for share in range(3)]
    assert [len(rows) for rows in found] == [4, 3, 2]
    assert sorted(row["id"] for rows in found for row in rows) == [
        row["id"] for row in read(tmp_path, [file], "id")
    ]


@pytest.mark.parametrize("shards", [1, 2, 3])
def test_read_of_a_file_gives_rows_the_shards_that_their_ids_have_now(
    tmp_path: Path, shards: int
) -> None:
    (file,) = written(tmp_path, batches(0, 1, 30))
    found = read(tmp_path, [file], "id", "shard", shards=shards)
    assert [row["shard"] for row in found] == [shard_number(row["id"], shards) for row in found]
    assert [row["shard"] for row in read(tmp_path, [file], "shard")] == [0, 1, 2] * 3


def test_write_that_reads_back_something_else_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = pq.ParquetWriter.write_table

    def forgetful(writer: Any, rows: pa.Table, **options: Any) -> None:
        real(writer, rows.slice(1), **options)

    monkeypatch.setattr(pq.ParquetWriter, "write_table", forgetful)
    with pytest.raises(JobFailed, match="nothing is moved"):
        written(tmp_path, batches(0))


def test_two_attempts_of_a_task_leave_files_of_their_own(tmp_path: Path) -> None:
    first, second = written(tmp_path, batches(0)), written(tmp_path, batches(0))
    assert len({*first} | {*second}) == 2
    assert len(read(tmp_path, list(second))) == 3


def test_read_of_some_ids_and_columns_gives_no_others(tmp_path: Path) -> None:
    files = list(written(tmp_path, batches(0, 1)))
    found = read(tmp_path, files, "id", "generation", ids=["1-2", "0-1", "absent"])
    assert found == [{"id": "0-1", "generation": 2}, {"id": "1-2", "generation": 3}]


def test_read_of_a_file_that_was_damaged_is_an_error(tmp_path: Path) -> None:
    (file,) = written(tmp_path, batches(0, blob=bytes(range(256))))
    path = tmp_path / file
    data = bytearray(path.read_bytes())
    at = data.index(b"\x28\xb5\x2f\xfd")  # where the first page's zstd frame begins
    data[at + 8] ^= 1
    path.write_bytes(data)
    with pytest.raises(JobFailed, match=f"{file}: expected a whole Parquet file.* CRC"):
        read(tmp_path, [file])


def test_read_of_a_missing_or_cut_file_names_it(tmp_path: Path) -> None:
    (file,) = written(tmp_path, batches(0))
    path = tmp_path / file
    path.write_bytes(path.read_bytes()[:-9])
    with pytest.raises(JobFailed, match=f"{file}: expected a whole Parquet file"):
        read(tmp_path, [file])
    path.unlink()
    with pytest.raises(JobFailed, match=f"{file}: expected a whole Parquet file.*No such file"):
        read(tmp_path, [file])


def test_read_gathers_small_files_into_one_batch(tmp_path: Path) -> None:
    files = list(written(tmp_path, batches(0, 1, 2, 3)))
    assert [batch.num_rows for batch in read_batches(tmp_path, files)] == [12]


@pytest.fixture
def log(world: World) -> ColdLog:
    return ColdLog(f"{world.home}/cold", "cold")


def test_ls_merges_files_of_many_hours_without_what_has_returned(
    world: World, log: ColdLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = [*written(Path(log.root), batches(0, 1, 30)), *written(Path(log.root), batches(2, 31))]
    (later,) = written(Path(log.root), batches(99))
    log.commit(Commit(kind=SCHEDULED, batch="B", at_ms=1, files=(*files, later)))
    assert listed(world)[:7] == ["0-0", "0-1", "0-2", "1-0", "1-1", "1-2", "2-0"]
    taken = tuple(log.state().due_before((FIRST + 3) * HOUR_MS))
    log.commit(Commit(kind=HYDRATED, batch="H", at_ms=2, taken=taken))
    (Path(log.root) / later).unlink()
    assert listed(world, "--limit", "5") == ["30-0", "30-1", "30-2", "31-0", "31-1"]
    assert world.command("get", "cold", "2-0").code == 1
    assert world.command("get", "cold", "99-0").code == 2, "the file that may have it is missing"


def test_tidy_cold_merges_small_files_without_spark(world: World, log: ColdLog) -> None:
    world.producer().get("cold", "absent")  # opens the route
    for hour in range(FEW + 1):
        files = tuple(written(Path(log.root), batches(hour)))
        log.commit(Commit(kind=SCHEDULED, batch=f"B{hour}", at_ms=1, files=files))
    before = listed(world)
    done = world.command("spark", "tidy-cold", "cold", "--output", "json")
    assert done.code == 0, done.err
    expected = {"route": "cold", "merged": FEW + 1, "lists": 0, "spent": 0, "left": 0, "entries": 0}
    assert done.json() == expected
    assert (len(log.state().files), len(before)) == (1, 3 * (FEW + 1))
    assert listed(world) == before
    assert world.command("get", "cold", "5-1").code == 0
    done = world.command("spark", "tidy-cold", "plain")
    assert (done.code, "cold_tier: expected a path" in done.err) == (2, True)


def test_hydrate_hour_by_hour_out_of_one_file_brings_each_row_once_though_killed(
    cold: ColdRoute, monkeypatch: pytest.MonkeyPatch
) -> None:
    cold.demoted("a", "b", "c", "d", "e", "f")
    monkeypatch.setattr(compaction, "FEW", 0)
    compact(cold.tier.log, cold.tier.now_ms())
    (file,) = cold.tier.log.state().files
    cold.reach(hours=1)
    with pytest.MonkeyPatch.context() as killing:
        killing.setattr(ColdLog, "commit", die)
        with pytest.raises(Killed):
            cold.hydrate()
    assert cold.tier.log.state().files == [file]
    came = len(cold.warm())
    cold.reach(hours=3)
    done = cold.hydrate()
    assert (done.duplicate, done.accepted) == (came, len(cold.warm()) - came)
    (rest,) = cold.tier.log.state().files
    assert rest.startswith(f"{file}#")
    assert cold.warm().isdisjoint(cold.ids())
    assert cold.warm() | {*cold.ids()} == {*"abcdef"}
    cold.reach()
    before = len(cold.warm())
    assert cold.hydrate().accepted == 6 - before
    assert (cold.warm(), cold.tier.log.state().files) == ({*"abcdef"}, [])


@pytest.mark.parametrize(("now", "expected"), [(0, 2), (1, 3), (HOUR_MS, 3), (HOUR_MS + 1, 4)])
def test_boundary_is_the_next_full_hour_behind_the_horizon(now: int, expected: int) -> None:
    assert boundary_ms(now, 2 * HOUR_MS) == expected * HOUR_MS


@pytest.fixture
def synced(monkeypatch: pytest.MonkeyPatch) -> Synced:
    """The names that a folder had when it was brought to the disk last."""
    found: Synced = {}
    sync = os.fsync

    def note(file: int) -> None:
        sync(file)
        if stat.S_ISDIR(os.fstat(file).st_mode):
            found[Path(os.readlink(f"/proc/self/fd/{file}"))] = {*os.listdir(file)}

    monkeypatch.setattr(os, "fsync", note)
    return found


@pytest.mark.parametrize("write", [create_file, write_file])
def test_write_of_a_file_brings_its_name_and_those_of_new_folders_to_the_disk(
    tmp_path: Path, synced: Synced, write: object
) -> None:
    assert callable(write)
    write(f"{tmp_path}/new/folder/file", b"data")
    assert "file" in synced[tmp_path / "new/folder"]
    assert "folder" in synced[tmp_path / "new"]
    assert "new" in synced[tmp_path]


def test_write_of_rows_brings_their_name_and_those_of_its_folders_to_the_disk(
    tmp_path: Path, synced: Synced
) -> None:
    row = {"id": "a", "batch": "B", "shard": 0, "generation": 1, "due_at_ms": 1, "blob": b"\0"}
    rows = pa.Table.from_pylist([row], arrow_schema(COLD))
    write_table(str(tmp_path), "batch=B/due=1/f.parquet", rows)
    assert "f.parquet" in synced[tmp_path / "batch=B/due=1"]
    assert "due=1" in synced[tmp_path / "batch=B"]
    assert "batch=B" in synced[tmp_path]
