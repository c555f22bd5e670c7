"""What is written to a local disk is there with its name before anyone relies on it."""

import os
import stat
from pathlib import Path

import pyarrow as pa
import pytest

from duebridge_connectors.spark.cold.parquet.files import write_table
from duebridge_connectors.spark.filesystem import create_file, write_file
from duebridge_connectors.spark.rows.arrow import arrow_schema
from duebridge_connectors.spark.rows.schema import COLD

Synced = dict[Path, set[str]]


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
