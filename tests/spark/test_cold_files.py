"""The files of the cold tier as tasks write and read them; no session is needed."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql.types import StructType

from duebridge.config.models import HOUR_MS
from duebridge.errors import JobFailed
from duebridge_connectors.spark.cold import parquet_files
from duebridge_connectors.spark.cold.commit_log import hour_of
from duebridge_connectors.spark.cold.parquet_files import (
    ColdBatch,
    ColdRead,
    read_files,
    write_hours,
)
from duebridge_connectors.spark.source.arrow import arrow_schema
from duebridge_connectors.spark.source.schema import COLD
from duebridge_connectors.spark.transforms.cold_copies import HOUR

SCHEMA = arrow_schema(COLD).append(pa.field(HOUR, pa.int64()))
FIRST = 500_000  # the hour that rows begin in, since the epoch


def batches(*hours: int, rows: int = 3, blob: bytes = b"body") -> list[pa.RecordBatch]:
    """Return so many rows of each hour, two rows a batch."""
    found = [
        {"id": f"{hour}-{number}", "batch": "B", "shard": number, "generation": number,
         "due_at_ms": (FIRST + hour) * HOUR_MS + number, "content_hash": b"h", "blob": blob,
         HOUR: FIRST + hour}
        for hour in hours
        for number in range(rows)
    ]  # fmt: skip
    made: list[pa.RecordBatch] = pa.Table.from_pylist(found, SCHEMA).to_batches(2)
    return made


def written(root: Path, rows: Sequence[pa.RecordBatch]) -> dict[str, int]:
    done = pa.Table.from_batches(write_hours(ColdBatch(str(root), "B"), iter(rows)))
    return {row["file"]: row["rows"] for row in done.to_pylist()}


def read_batches(
    root: Path, files: Sequence[str], *columns: str, ids: Sequence[str] | None = None
) -> list[pa.RecordBatch]:
    wanted = ColdRead(str(root), StructType([COLD[name] for name in columns or COLD.names]), ids)
    return list(read_files(wanted, iter([pa.RecordBatch.from_pydict({"file": list(files)})])))


def read(root: Path, files: Sequence[str], *columns: str, **of: Any) -> list[dict[str, Any]]:
    return [row for batch in read_batches(root, files, *columns, **of) for row in batch.to_pylist()]


def test_write_gives_every_hour_a_file_of_all_its_rows(tmp_path: Path) -> None:
    found = written(tmp_path, batches(0, 1, 30))
    assert list(found.values()) == [3, 3, 3]
    assert [hour_of(file) // HOUR_MS - FIRST for file in found] == [0, 1, 30]
    rows = [row for batch in batches(0, 1, 30) for row in batch.drop_columns([HOUR]).to_pylist()]
    assert read(tmp_path, list(found)) == rows


def test_write_of_an_hour_beyond_what_memory_has_makes_files_of_its_parts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parquet_files, "FILE_BYTES", 1000)
    found = written(tmp_path, batches(0, rows=5, blob=bytes(600)))
    assert list(found.values()) == [2, 2, 1]
    assert len({hour_of(file) for file in found}) == 1


def test_write_that_reads_back_something_else_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = pq.write_table

    def forgetful(rows: pa.Table, *given: Any, **options: Any) -> None:
        real(rows.slice(1), *given, **options)

    monkeypatch.setattr(pq, "write_table", forgetful)
    with pytest.raises(JobFailed, match="nothing is moved"):
        written(tmp_path, batches(0))


def test_two_attempts_of_a_task_leave_files_of_their_own(tmp_path: Path) -> None:
    first, second = written(tmp_path, batches(0)), written(tmp_path, batches(0))
    assert len({*first} | {*second}) == 2
    assert len(read(tmp_path, list(second))) == 3


def test_read_of_some_ids_and_columns_gives_no_others(tmp_path: Path) -> None:
    files = list(written(tmp_path, batches(0, 1)))
    found = read(tmp_path, files, "id", "generation", ids=["1-2", "0-1", "absent"])
    assert found == [{"id": "0-1", "generation": 1}, {"id": "1-2", "generation": 2}]


def test_read_of_a_file_that_was_damaged_is_an_error(tmp_path: Path) -> None:
    (file,) = written(tmp_path, batches(0, blob=bytes(range(256))))
    path = tmp_path / file
    data = bytearray(path.read_bytes())
    at = data.index(b"\x28\xb5\x2f\xfd")  # where the first page's zstd frame begins
    data[at + 8] ^= 1
    path.write_bytes(data)
    with pytest.raises(OSError, match="CRC"):
        read(tmp_path, [file])


def test_read_gathers_small_files_into_one_batch(tmp_path: Path) -> None:
    files = list(written(tmp_path, batches(0, 1, 2, 3)))
    assert [batch.num_rows for batch in read_batches(tmp_path, files)] == [12]
