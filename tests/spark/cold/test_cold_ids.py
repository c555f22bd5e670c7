"""The filter of ids beside each file: it never hides an id, and rules out nearly all others."""

import random
from pathlib import Path

import pytest
from pyarrow.fs import LocalFileSystem

from duebridge_connectors.spark.cold.parquet.id_filter import SUFFIX, filter_of, have_any

IDS = [f"order-{number}" for number in range(2000)]
OTHERS = [f"order-{number}" for number in range(10_000, 30_000)]


@pytest.fixture
def file(tmp_path: Path) -> str:
    (tmp_path / f"a.parquet{SUFFIX}").write_bytes(filter_of(IDS))
    return f"{tmp_path}/a.parquet"


def has(file: str, envelope_id: str) -> bool:
    (found,) = have_any(LocalFileSystem(), [file], [envelope_id])
    return found


def test_filter_knows_every_id_and_few_others(file: str) -> None:
    assert all(has(file, each) for each in IDS)
    assert sum(has(file, each) for each in OTHERS) < len(OTHERS) / 100
    assert Path(file + SUFFIX).stat().st_size <= 2.2 * len(IDS)


@pytest.mark.parametrize("ids", [[], [""], ["é☃"], ["x" * 255]])
def test_filter_of_few_ids_knows_them(tmp_path: Path, ids: list[str]) -> None:
    (tmp_path / f"b{SUFFIX}").write_bytes(filter_of(ids))
    assert all(has(f"{tmp_path}/b", each) for each in ids)
    assert not has(f"{tmp_path}/b", "another")


def test_filter_that_is_damaged_or_missing_hides_no_id(file: str) -> None:
    path = Path(file + SUFFIX)
    whole = path.read_bytes()
    drawn = random.Random(3)
    for _ in range(50):
        data = bytearray(whole)
        data[drawn.randrange(len(data))] ^= 1 << drawn.randrange(8)
        path.write_bytes(data)
        assert all(has(file, each) for each in drawn.sample(IDS, 20))
    for cut in (0, 1, 63, 64, 640):
        path.write_bytes(whole[:cut])
        assert all(has(file, each) for each in IDS[:20])
    path.unlink()
    assert all(has(file, each) for each in IDS[:20])
