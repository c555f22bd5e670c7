"""Tidy of any table: escaped values, Spark's instants, bounds of any column, newer protocols."""

import json
import os
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake
from deltalake.transaction import AddAction

from duebridge.errors import ConfigError, JobFailed
from duebridge_connectors.spark.filesystem import remove_empty_folder
from duebridge_connectors.spark.jobs.tidy import tidy
from duebridge_connectors.spark.table import tidy_merge
from duebridge_connectors.spark.table.small_files import small_files


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


def test_tidy_of_partitions_that_share_a_directory_merges_each_and_changes_no_row(
    tmp_path: Path,
) -> None:
    """Their values are in Delta's log; that its folders have them too is a habit of writers."""
    days = ["d1", "d2", None, "d1", "d2", None]
    write_deltalake(
        tmp_path, pa.table({"number": ["first"], "part": ["d0"]}), partition_by=["part"]
    )
    table, added = DeltaTable(tmp_path), []
    (tmp_path / "x1").mkdir()
    for number, day in enumerate(days):
        path = tmp_path / "x1" / f"{number}.parquet"
        pq.write_table(pa.table({"number": [f"{number}"]}), path)
        size, name = path.stat().st_size, f"x1/{path.name}"
        added.append(AddAction(name, size, {"part": day}, 1, True, '{"numRecords": 1}'))
    table.create_write_transaction(added, "append", table.schema(), ["part"])

    def rows() -> list[str]:  # polars takes the values from folders alone
        return sorted(map(str, DeltaTable(tmp_path).to_pyarrow_table().to_pylist()))

    before = rows()
    done = tidy(str(tmp_path), 0)
    assert (done.merged_files, done.into_files) == (6, 3)
    assert rows() == before


def test_tidy_of_instants_as_spark_writes_them_changes_none(tmp_path: Path) -> None:
    """INT96 has no unit; nanoseconds, the reader's own, end in 2262."""
    root, far = str(tmp_path / "table"), datetime(2999, 12, 31, tzinfo=UTC)
    for _ in range(2):
        write_deltalake(root, pa.table({"far": [far], "in": [{"at": far}]}), mode="append")
    for path in Path(root).glob("*.parquet"):
        pq.write_table(pq.read_table(path), path, use_deprecated_int96_timestamps=True)
    done = tidy(root, 0)
    assert (done.merged_files, done.table_files) == (2, 1)
    assert pl.scan_delta(root).collect().to_dicts() == [{"far": far, "in": {"at": far}}] * 2
    (merged,) = Path(root).glob("*.parquet")
    assert pq.read_schema(merged).field("far").type == pa.timestamp("us", "UTC")


def test_tidy_of_files_of_other_writers_is_of_one_layout_and_changes_no_row(
    tmp_path: Path,
) -> None:
    root, rows = str(tmp_path / "table"), {"text": ["x"], "raw": [b"y"], "list": [["z"]]}
    write_deltalake(root, pa.table(rows))
    pl.DataFrame(rows).write_delta(root, mode="append")
    large = pa.schema(
        {"text": pa.large_string(), "raw": pa.large_binary(), "list": pa.large_list(pa.utf8())}
    )
    write_deltalake(root, pa.table(rows), mode="append")
    last = small_files(DeltaTable(root))[-1]
    pq.write_table(pa.table(rows, schema=large), f"{root}/{last.path}")
    done = tidy(root, 0)
    assert (done.merged_files, done.into_files, done.left) == (3, 1, [])
    assert (
        pl.scan_delta(root).collect().to_dicts() == [{"text": "x", "raw": b"y", "list": ["z"]}] * 3
    )


def test_tidy_leaves_a_file_whose_instants_the_table_cannot_hold_and_merges_the_others(
    tmp_path: Path,
) -> None:
    root = str(tmp_path / "table")
    for _ in range(3):
        write_deltalake(root, pa.table({"at": [datetime(2026, 1, 1, tzinfo=UTC)]}), mode="append")
    odd = small_files(DeltaTable(root))[0].path
    nanoseconds = pa.table({"at": pa.array([1], pa.timestamp("ns", "UTC"))})
    pq.write_table(nanoseconds, f"{root}/{odd}")
    done = tidy(root, 0)
    assert (done.merged_files, done.into_files, done.table_files) == (2, 1, 2)
    (left,) = done.left
    assert left.startswith(f"{odd}: expected values of the table's types; got: Casting")


def test_tidy_of_a_table_with_bounds_leaves_no_row_out_of_a_query(tmp_path: Path) -> None:
    """A field of a struct may have a column's name, and a bound a type that the log has not."""
    root = str(tmp_path / "table")
    names = ("id", "day", "price", "ratio", "raw")
    settings = {"delta.dataSkippingStatsColumns": ",".join(names)}
    for number in range(2):
        row = {
            "id": number,
            "customer": {"id": number + 1000},
            "day": date(2026, 1, 1 + number),
            "price": Decimal("1.50"),
            "ratio": float("inf"),
            "raw": b"\xff",
        }
        write_deltalake(root, pa.Table.from_pylist([row]), mode="append", configuration=settings)
    assert tidy(root, 0).merged_files == 2
    (file,) = pa.table(DeltaTable(root).get_add_actions()).to_pylist()
    assert (file["min"]["id"], file["max"]["id"]) == (0, 1)
    found = pl.scan_delta(root).filter((pl.col("id") == 1) & (pl.col("day") > date(2026, 1, 1)))
    assert found.collect()["id"].to_list() == [1]


def test_tidy_leaves_a_folder_that_is_written_to_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tmp_path / "table"
    write_deltalake(str(root), pa.table({"number": [1]}))
    folders = [root / "day=2026-01-01", root / "day=2026-01-02"]
    for folder in folders:
        folder.mkdir()
        os.utime(folder, (1, 1))
    plain = remove_empty_folder

    def written(place: str, path: str) -> None:
        if path.endswith("01"):
            (folders[0] / "new.parquet").write_bytes(b"")
        plain(place, path)

    monkeypatch.setattr("duebridge_connectors.spark.jobs.tidy.remove_empty_folder", written)
    tidy(str(root), 3_600_000)
    assert [folder.exists() for folder in folders] == [True, False]


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


def table_of(root: Path, **protocol: Any) -> str:
    """Make a table of three files, whose last version asks for a protocol."""
    for number in range(3):
        write_deltalake(root, pa.table({"id": [number]}), mode="append")
    asked = {"protocol": {"minReaderVersion": 1, **protocol}}
    log = root / "_delta_log" / f"{3:020}.json"
    log.write_text("\n".join(map(json.dumps, [{"commitInfo": {"timestamp": 1}}, asked])))
    return str(root)


@pytest.mark.parametrize("feature", ["inCommitTimestamp", "rowTracking", "ofTheFuture"])
def test_tidy_of_a_table_of_newer_features_is_refused_by_their_name(
    tmp_path: Path, feature: str
) -> None:
    root = table_of(tmp_path, minWriterVersion=7, writerFeatures=[feature, "appendOnly"])
    with pytest.raises(ConfigError, match=f"oldest protocol .* alone.; got {feature}: use its"):
        tidy(root, 0)
    assert len(DeltaTable(root).file_uris()) == 3


def test_tidy_of_a_table_of_identity_columns_is_refused(tmp_path: Path) -> None:
    root = table_of(tmp_path, minWriterVersion=6)
    with pytest.raises(ConfigError, match="got writer version 6"):
        tidy(root, 0)


def test_tidy_of_a_table_of_features_that_bind_new_rows_merges_it(tmp_path: Path) -> None:
    root = table_of(tmp_path, minWriterVersion=7, writerFeatures=["appendOnly", "changeDataFeed"])
    assert tidy(root, 0).merged_files == 3


def test_tidy_beside_a_delete_tells_what_was_in_its_way(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def before_a_delete(*given: Any) -> Any:
        added = merged(*given)
        DeltaTable(root).delete("id = 1")
        return added

    root, merged = table_of(tmp_path, minWriterVersion=2), tidy_merge._merged
    monkeypatch.setattr(tidy_merge, "_merged", before_a_delete)
    with pytest.raises(JobFailed, match=r"expected to commit the merged files; got: .*delete"):
        tidy(root, 0)
