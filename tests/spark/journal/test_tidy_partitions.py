"""Tidy of any table: partitions whose values are escaped in the names of their folders."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import duckdb
import polars as pl
import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from duebridge_connectors.spark.jobs.tidy import tidy


@pytest.mark.parametrize(
    "values",
    [
        ["a b", "x/y", "100%", "ü", "a%20b", "", None],
        [datetime(2026, 1, 1, 10, 0, 0, 123_000, tzinfo=UTC), None],
        [b"\x01a\xff", None],
        [True, False, None],
    ],
    ids=["text", "timestamp", "binary", "boolean"],
)
def test_tidy_of_partitions_with_escaped_values_merges_each_and_changes_no_row(
    tmp_path: Path, values: list[Any]
) -> None:
    root = str(tmp_path / "table")
    for number in range(2):
        rows = pa.table({"part": values, "number": [number] * len(values)})
        write_deltalake(root, rows, mode="append", partition_by=["part"])
    before = by_each_reader(root)
    done = tidy(root, 0)
    assert (done.merged_files, done.into_files) == (2 * len(values), len(values))
    assert done.removed_files == 2 * len(values)
    assert by_each_reader(root) == before


def by_each_reader(root: str) -> list[list[str]]:
    """What deltalake, DuckDB and polars read; the latter knows no binary partitions."""
    table = DeltaTable(root)
    rows = table.to_pyarrow_table()
    read: list[list[dict[str, Any]]] = [
        rows.to_pylist(),
        duckdb.from_arrow(table.to_pyarrow_dataset()).to_arrow_table().to_pylist(),
    ]
    if rows.schema.field("part").type != pa.binary():
        read.append(pl.scan_delta(root).collect().to_dicts())
    return [sorted(f"{row['part']} {row['number']}" for row in each) for each in read]
