"""Delta's reader: what a session needs for it, and a table that `deltalake` wrote."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from deltalake import write_deltalake
from pyspark.sql import SparkSession

from duebridge.errors import ConfigError
from duebridge_connectors.spark.delta_reader import check_delta_reader, delta_settings

COMMITS = 12  # beyond ten there is a checkpoint, which some versions of the reader cannot read


def test_delta_settings_add_to_other_extensions_and_keep_what_is_given() -> None:
    asked = {
        "spark.sql.extensions": "a.Own, a.Own",
        "spark.databricks.delta.snapshotPartitions": "8",
    }
    found = delta_settings({"spark.master": "local", **asked})
    assert found["spark.sql.extensions"] == "a.Own,io.delta.sql.DeltaSparkSessionExtension"
    assert found["spark.databricks.delta.snapshotPartitions"] == "8"
    assert found["spark.master"] == "local"
    assert delta_settings(found) == found


def test_check_delta_reader_of_a_session_without_it_names_the_package() -> None:
    bare: Any = SimpleNamespace(conf={})
    with pytest.raises(ConfigError, match=r"expected a session .* --packages io.delta:delta-spark"):
        check_delta_reader(bare)


def test_read_of_a_table_that_deltalake_wrote_past_a_checkpoint_gives_every_row(
    spark: SparkSession, tmp_path: Path
) -> None:
    table = str(tmp_path / "table")
    for number in range(COMMITS):
        rows = pa.table({"number": [number], "day": ["2026-03-01"]})
        every_tenth = {"delta.checkpointInterval": "10"}
        write_deltalake(table, rows, mode="append", partition_by=["day"], configuration=every_tenth)
    assert (tmp_path / "table" / "_delta_log" / "_last_checkpoint").exists()
    check_delta_reader(spark)
    found = spark.read.format("delta").load(table).collect()
    assert sorted(row["number"] for row in found) == list(range(COMMITS))
