"""Contents as columns, which people can read, come back byte for byte; the filter of ids."""

import random
from contextlib import suppress
from pathlib import Path
from typing import Any

import duckdb
import msgspec
import polars
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from msgspec.msgpack import Ext
from pyarrow.fs import LocalFileSystem

from duebridge.envelope import Envelope, Properties, Target
from duebridge.errors import EnvelopeError
from duebridge.store.wire.record import EnvelopeContent, pack, pack_content, plain_blob
from duebridge_connectors.spark.cold.parquet.contents import (
    BLOB,
    CONTENTS,
    with_blobs,
    with_contents,
)
from duebridge_connectors.spark.cold.parquet.files import write_table
from duebridge_connectors.spark.cold.parquet.id_filter import SUFFIX, filter_of, have_any
from duebridge_connectors.spark.cold.parquet.row_groups import read_groups
from duebridge_connectors.spark.filesystem import open_filesystem
from duebridge_connectors.spark.rows.arrow import arrow_schema
from duebridge_connectors.spark.rows.schema import COLD
from tests.support.model.drawn_envelopes import Batch, batches

HOSTILE = {
    "a damaged one": b"\x00no msgpack",
    "a codec to come": b"\x07whatever",
    "nothing": b"",
    "a cut frame": b"\x01\x28\xb5\x2f\xfd",
    "a shorter form": b"\x00" + msgspec.msgpack.encode([b"body", b"key"]),
    "a longer form": b"\x00" + msgspec.msgpack.encode([b"b", None, [], None, None, None, "new"]),
    "a long number": b"\x00\x96\xc4\x01b\xc0\x90\xd3" + bytes(7) + b"\x05\xc0\xc0",
    "a number beyond columns": pack_content(EnvelopeContent(b"b", max_attempts=2**64 - 1)),
    "a float in a header": b"\x00" + msgspec.msgpack.encode([b"b", None, [["h", 1.5]]]),
    "a header that is no text": b"\x00" + msgspec.msgpack.encode([b"b", None, [[b"h", 1]]]),
    "properties that are empty": b"\x00" + msgspec.msgpack.encode([b"b", None, [], None, {}, None]),
}


CONTENT = {"body", "key", "headers", "max_attempts", "target", *Properties.__struct_fields__}
IDS = [f"order-{number}" for number in range(2000)]
OTHERS = [f"order-{number}" for number in range(10_000, 30_000)]


def stored(*blobs: bytes) -> pa.Table:
    rows = [{"id": str(number), BLOB: blob} for number, blob in enumerate(blobs)]
    return pa.Table.from_pylist(rows, arrow_schema(COLD))


def returned(rows: pa.Table) -> list[bytes]:
    found: list[bytes] = with_blobs(with_contents(rows)).column(BLOB).to_pylist()
    return found


@pytest.mark.parametrize("blob", HOSTILE.values(), ids=HOSTILE)
def test_blob_that_columns_could_not_give_back_stays(blob: bytes) -> None:
    ordinary = pack(Envelope.new(b"x", id="x", delay="1h")).blob
    assert returned(stored(ordinary, blob, ordinary)) == [ordinary, blob, ordinary]


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(batches)
@example(Batch([{"body": b"", "headers": [("a", None), ("a", True), ("a", Ext(4, b"\0"))]}]))
def test_any_envelope_comes_back_byte_for_byte(drawn: Batch) -> None:
    blobs = []
    for fields in drawn:
        content = {name: value for name, value in fields.items() if name in CONTENT}
        with suppress(EnvelopeError):
            blobs.append(pack(Envelope.new(**content, delay="1h")).blob)
    rows = with_contents(stored(*blobs))
    assert rows.column(BLOB).null_count == len(blobs), "all are readable"
    assert with_blobs(rows).column(BLOB).to_pylist() == blobs


@settings(max_examples=50, deadline=None)
@given(st.lists(st.binary(max_size=40).map(lambda tail: b"\0" + tail), max_size=5))
def test_any_bytes_come_back_byte_for_byte(blobs: list[bytes]) -> None:
    assert [*map(plain_or_same, returned(stored(*blobs)))] == [*map(plain_or_same, blobs)]


def plain_or_same(blob: bytes) -> bytes:
    return plain_blob(blob) if blob[:1] == b"\x01" else blob


def test_file_shows_people_what_an_envelope_is(tmp_path: Path) -> None:
    envelope = Envelope.new(
        '{"order": 7}',
        id="o-7",
        delay="1h",
        key=b"customer-1",
        headers=[("x-try", 3), ("trace", "t-é"), ("raw", b"\xff"), ("void", None)],
        content_type="application/json",
        max_attempts=5,
        target=Target("orders", topic="late"),
        correlation_id="c",
    )
    file = write(tmp_path, pack(envelope).blob)
    (row,) = pq.read_table(file).to_pylist()
    assert (row["body"], row["content_type"]) == (b'{"order": 7}', "application/json")
    assert (row["key"], row["max_attempts"], row[BLOB]) == (b"customer-1", 5, None)
    assert [tuple(header.values()) for header in row["headers"]] == [
        ("x-try", "integer", b"3"),
        ("trace", "text", "t-é".encode()),
        ("raw", "bytes", b"\xff"),
        ("void", "null", None),
    ]
    assert row["properties"]["correlation_id"] == "c"
    assert row["target"] == [("broker", "orders"), ("topic", "late")]


def test_file_is_read_by_duckdb_and_polars(tmp_path: Path) -> None:
    headers = [("tenant", "t-1"), ("try", 2)]
    envelopes = [Envelope.new(f"body {n}", headers=headers, delay="1h", key=b"k") for n in range(3)]
    file = write(tmp_path, *(pack(each).blob for each in envelopes))
    names = "id, decode(body), headers[1].name, decode(headers[1].value), properties.content_type"
    found = duckdb.read_parquet(str(file)).project(names).order("id").fetchall()
    assert found == [(f"{n}", f"body {n}", "tenant", "t-1", None) for n in range(3)]
    frame = polars.read_parquet(file).sort("id")
    assert frame["body"].to_list() == [b"body 0", b"body 1", b"body 2"]
    values = frame["headers"].list.last().struct.field("value")
    assert values.to_list() == [b"2"] * 3


def test_read_without_the_blob_reads_no_content(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = write(
        tmp_path, *(pack(Envelope.new(b"x" * size, delay="1h")).blob for size in (1, 9999))
    )
    asked: list[Any] = []
    real = pq.ParquetFile.read_row_group
    monkeypatch.setattr(
        pq.ParquetFile, "read_row_group", lambda *given: [asked.append(given[2]), real(*given)][1]
    )
    files, path = open_filesystem(str(file))
    (keys,) = read_groups(files, path, ["id", "generation"])
    assert keys.column("id").to_pylist() == ["0", "1"]
    (whole,) = read_groups(files, path, ["id", BLOB])
    assert whole.schema.names == ["id", BLOB]
    assert asked == [["id", "generation"], ["id", BLOB, *CONTENTS.names]]


def write(home: Path, *blobs: bytes) -> Path:
    write_table(str(home), "a/b.parquet", stored(*blobs))
    return home / "a/b.parquet"


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
