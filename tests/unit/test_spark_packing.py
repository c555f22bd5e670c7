"""A row that is packed at once has the bytes that `Envelope.new` and `pack` would give it."""

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from duebridge.config.models import Route
from duebridge.envelope import Envelope, Target
from duebridge.errors import EnvelopeError
from duebridge.limits import check_envelope
from duebridge.store.record import pack
from duebridge_connectors.spark.source.packing import Packer

ROUTE = Route(name="r", target=Target("b", topic="t"), max_body="2000B")
HORIZON_MS = 1000

ids = st.one_of(st.text(max_size=12), st.sampled_from([None, "a", "ü", "a b", "x" * 256]))
bodies = st.one_of(st.none(), st.binary(max_size=20), st.sampled_from([b"x" * 600, b"y" * 2001]))
instants = st.one_of(st.none(), st.integers(-2, 2**47 + 2), st.just(1_767_225_600))
delays = st.sampled_from([None, "15m", "2.5s", "soon", "-1s", "0ms"])
header_values = st.one_of(st.none(), st.binary(max_size=5))
headers = st.lists(
    st.tuples(st.sampled_from(["n", "m", "", "x-attempt", "ü"]), header_values), max_size=4
)
rows = st.fixed_dictionaries(
    {
        "id": ids,
        "body": bodies,
        "due_at": instants,
        "delay": delays,
        "key": st.one_of(st.none(), st.binary(max_size=5)),
        "headers": st.one_of(st.none(), headers),
        "expires": st.one_of(st.none(), st.sampled_from(["1d", "no"])),
        "max_attempts": st.sampled_from([None, None, 3, 0]),
        "content_type": st.sampled_from([None, None, "text/plain"]),
    }
)
TYPES = {
    "id": pa.string(),
    "body": pa.binary(),
    "due_at": pa.int64(),
    "delay": pa.string(),
    "key": pa.binary(),
    "headers": pa.list_(pa.struct([("name", pa.string()), ("value", pa.binary())])),
    "expires": pa.string(),
    "max_attempts": pa.int32(),
    "content_type": pa.string(),
}


def batch_of(given_rows: list[dict[str, Any]]) -> pa.RecordBatch:
    columns = {name: [row[name] for row in given_rows] for name in TYPES}
    arrays = [pa.array(column, TYPES[name]) for name, column in columns.items()]
    return pa.RecordBatch.from_arrays(arrays, list(TYPES))


def the_long_way(row: dict[str, Any], broker_type: str) -> tuple[Any, ...] | None:
    fields = {**row, "at": row["due_at"]}
    del fields["due_at"], fields["body"]
    if row["id"] is None:
        return None
    try:
        envelope = Envelope.new(row["body"], **fields)
        check_envelope(envelope, ROUTE, broker_type)
    except EnvelopeError:
        return None
    packed = pack(envelope)
    expires = "" if envelope.expires is None else str(envelope.expires)
    due = str(envelope.due)
    return (envelope.id, due, expires, HORIZON_MS, packed.content_hash, 0, packed.blob)


@pytest.mark.parametrize("broker_type", ["kafka", "rabbitmq"])
@given(given_rows=st.lists(rows, min_size=1, max_size=8))
def test_pack_of_any_row_is_what_the_long_way_gives(
    broker_type: str, given_rows: list[dict[str, Any]]
) -> None:
    packer = Packer(ROUTE, broker_type, HORIZON_MS)
    for _ in range(2):  # the second time header names and durations are known
        packing = packer.pack(batch_of(given_rows))
        expected = [the_long_way(row, broker_type) for row in given_rows]
        assert packing.rows == expected
        assert packing.refusals.keys() == {n for n, row in enumerate(expected) if row is None}
        assert all(packing.refusals.values())


def test_pack_of_instants_rounds_up_and_takes_any_unit() -> None:
    us = pa.array([1_000_001, None, -1], pa.timestamp("us", "UTC"))
    batch = pa.RecordBatch.from_arrays(
        [pa.array(["a", "b", "c"]), pa.array([b"x"] * 3), us], ["id", "body", "due_at"]
    )
    packing = Packer(ROUTE, "memory", HORIZON_MS).pack(batch)
    assert [row and row.due for row in packing.rows] == ["1001", None, "0"]
    assert packing.refusals.keys() == {1}
