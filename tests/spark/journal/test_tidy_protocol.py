"""Tidy of tables whose protocol is newer than what it can commit to, and of a refused commit."""

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from duebridge.errors import ConfigError, JobFailed
from duebridge_connectors.spark.jobs.tidy import tidy
from duebridge_connectors.spark.table import tidy_merge


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
