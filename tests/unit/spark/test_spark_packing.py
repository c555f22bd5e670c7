"""A row that is packed at once has the bytes that `Envelope.new` and `pack` would give it."""

from collections.abc import Iterator
from functools import cache
from importlib.metadata import EntryPoint
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from pyspark.sql.pandas.types import from_arrow_schema

from duebridge.config.models import Config
from duebridge.envelope import Envelope, Instant, Target
from duebridge.errors import EnvelopeError
from duebridge.ports import discovery
from duebridge.scheduling.limits import MAX_HEADER_BYTES, MAX_HEADERS, EndBroker, RouteLimits
from duebridge.store.wire.packed_row import PackedRow, pack_row
from duebridge.store.wire.record import pack
from duebridge_connectors.memory import Memory
from duebridge_connectors.spark.rows import arrow
from duebridge_connectors.spark.rows.packing import Packer
from duebridge_connectors.spark.rows.schema import check_columns

BROKERS = {
    "memory": {"type": "memory"},
    "kafka": {"type": "kafka", "bootstrap_servers": ["localhost:9092"]},
    "rabbitmq": {"type": "rabbitmq", "url": "amqp://localhost"},
    "picky": {"type": "memory"},
}
HORIZON_MS = 1000

ids = st.one_of(st.text(max_size=12), st.sampled_from([None, "a", "ü", "a b", "x" * 256]))
bodies = st.one_of(st.none(), st.binary(max_size=20), st.sampled_from([b"x" * 600, b"y" * 2001]))
like_dates = [20_261_231, 202_612_310_900]
instants = st.one_of(
    st.none(), st.integers(-2, 2**47 + 2), st.sampled_from([1_767_225_600, *like_dates])
)
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


@cache
def limits(target: str, dead_letter: str = "") -> RouteLimits:
    place = {"rabbitmq": {"exchange": "", "routing_key": "q"}}
    route: dict[str, Any] = {"max_body": "2000B"}
    for key, broker in (("target", target), ("dead_letter", dead_letter)):
        if broker:
            route[key] = {"broker": broker, **place.get(broker, {"topic": key})}
    config = Config.model_validate({"version": 1, "brokers": BROKERS, "routes": {"r": route}})
    found = RouteLimits.of(config, config.routes["r"])
    ends = {"delivery": found.delivery, "dead_letter": found.dead_letter}
    return replace(found, **{name: named(end) for name, end in ends.items()})


def named(end: EndBroker | None) -> EndBroker | None:
    """Return an end whose type is what its broker is called."""
    return end and replace(end, type=end.broker)


def batch_of(given_rows: list[dict[str, Any]]) -> pa.RecordBatch:
    columns = {name: [row[name] for row in given_rows] for name in TYPES}
    arrays = [pa.array(column, TYPES[name]) for name, column in columns.items()]
    return pa.RecordBatch.from_arrays(arrays, list(TYPES))


def the_long_way(row: dict[str, Any], limits: RouteLimits) -> tuple[Any, ...] | None:
    fields = {**row, "at": row["due_at"]}
    del fields["due_at"], fields["body"]
    if row["id"] is None:
        return None
    try:
        envelope = Envelope.new(row["body"], **fields)
        limits.check(envelope)
    except EnvelopeError:
        return None
    return pack_row(envelope, HORIZON_MS)


class Picky(Memory):
    """A third party's type, which refuses by fields that no other broker looks at."""

    def check_envelope(self, envelope: Envelope, *_: Any) -> None:
        odd = envelope.due.ms % 2 or len(envelope.id) % 2
        if odd or envelope.expires or any(name == "m" for name, _ in envelope.headers):
            raise EnvelopeError("envelope: expected an even one")


PICKY = Picky()


@pytest.fixture(scope="module", autouse=True)
def picky() -> Iterator[None]:
    """Install the type `picky`."""
    mine = {"picky": EntryPoint("picky", f"{__name__}:PICKY", discovery.GROUP)}
    installed = {**discovery._installed(), **mine}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(discovery, "_installed", lambda: installed)
        yield


ENDS: list[tuple[str, ...]] = [("kafka",), ("rabbitmq",), ("picky",)]
ENDS += [("kafka", "rabbitmq"), ("rabbitmq", "kafka"), ("kafka", "picky")]


@given(given_rows=st.lists(rows, min_size=1, max_size=8))
def test_pack_of_any_row_is_what_the_long_way_gives(given_rows: list[dict[str, Any]]) -> None:
    for brokers in ENDS:  # here, since drawing the rows takes longer than packing them
        check_packing(limits(*brokers), given_rows)


def check_packing(limits: RouteLimits, given_rows: list[dict[str, Any]]) -> None:
    packer = Packer(limits, HORIZON_MS)
    expected = [the_long_way(row, limits) for row in given_rows]
    for _ in range(2):  # the second time header names and durations are known
        packing = packer.pack(batch_of(given_rows))
        assert packing.rows == expected
        assert packing.refusals.keys() == {n for n, row in enumerate(expected) if row is None}
        assert all(packing.refusals.values())


ALMOST = b"x" * (MAX_HEADER_BYTES - 1)
MANY_HEADERS: list[list[tuple[str, bytes | None]]] = [
    [("n", ALMOST)],
    [("ü", ALMOST)],
    [("n", ALMOST[:-10]), ("n", None)],
    [("n", b"")] * MAX_HEADERS,
    [("n", None)] * (MAX_HEADERS + 1),
    [("n", None), ("x-attempt", b"")],
]


@pytest.mark.parametrize("kind", [TYPES["headers"], pa.map_(pa.string(), pa.binary())])
def test_pack_of_as_many_headers_as_allowed_takes_them_and_refuses_more(kind: pa.DataType) -> None:
    fields = dict.fromkeys(TYPES) | {"id": "a", "body": b"", "delay": "1s"}
    given_rows = [fields | {"headers": headers} for headers in MANY_HEADERS]
    batch = batch_of(given_rows).drop_columns(["headers"])
    batch = batch.append_column("headers", pa.array(MANY_HEADERS, kind))
    packing = Packer(limits("memory"), HORIZON_MS).pack(batch)
    assert packing.rows == [the_long_way(row, limits("memory")) for row in given_rows]
    assert packing.refusals.keys() == {1, 2, 4, 5}


@pytest.mark.parametrize("kind", [pa.int8(), pa.int64(), pa.bool_()])
def test_pack_of_headers_of_numbers_or_truth_values_is_what_the_long_way_gives(
    kind: pa.DataType,
) -> None:
    values = [True, None, False] if kind == pa.bool_() else [1, None, -128]
    headers = [[("n", value)] for value in values] + [[("n", values[0])] * (MAX_HEADERS + 1)]
    fields = dict.fromkeys(TYPES) | {"id": "a", "body": b"", "delay": "1s"}
    given_rows = [fields | {"headers": pairs} for pairs in headers]
    batch = batch_of([fields] * len(headers)).drop_columns(["headers"])
    batch = batch.append_column("headers", pa.array(headers, pa.map_(pa.string(), kind)))
    packing = Packer(limits("memory"), HORIZON_MS).pack(batch)
    assert packing.rows == [the_long_way(row, limits("memory")) for row in given_rows]
    assert packing.refusals.keys() == {3}


def cut_text(good: str) -> Any:
    """Two texts as Spark casts them from bytes: a good one, and one that is no UTF-8."""
    return pa.array([good.encode(), b"\xff"]).view(pa.string())


def of_headers(names: Any, values: Any) -> Any:
    return pa.MapArray.from_arrays([0, 1, 2], names, values)


TWO = pa.array(["a", "b"])
NO_UTF8 = {
    "id": cut_text("a"),
    "delay": cut_text("1s"),
    "expires": cut_text("1d"),
    "content_type": cut_text("text/plain"),
    "headers": of_headers(TWO, cut_text("x")),
    "headers by name": of_headers(cut_text("n"), TWO),
    "target": pa.StructArray.from_arrays(
        [pa.array(["memory"] * 2), cut_text("target")],
        ["broker", "topic"],
        mask=pa.array([True, False]),
    ),
}


@pytest.mark.parametrize("column", NO_UTF8)
def test_pack_of_text_that_is_no_utf8_refuses_its_row_alone(column: str) -> None:
    given = {"id": TWO, "body": TWO, "delay": pa.array(["1s"] * 2)}
    given[column.split()[0]] = NO_UTF8[column]
    packing = Packer(limits("memory"), HORIZON_MS).pack(pa.RecordBatch.from_pydict(given))
    assert (packing.rows[0] is None, packing.refusals.keys()) == (False, {1})
    assert r"'\udcff'" in packing.refusals[1]


def test_values_beside_text_that_is_no_utf8_stay_as_they_are() -> None:
    column = pa.array([b"\xff", b"", None, "ü".encode()]).view(pa.string())
    assert arrow.python_values(column) == ["\udcff", "", None, "ü"]


def test_pack_of_text_that_is_no_utf8_derives_no_id_of_it() -> None:
    given = {"who": cut_text("a"), "body": TWO, "delay": pa.array(["1s"] * 2)}
    packer = Packer(limits("memory"), HORIZON_MS, ("who",))
    packing = packer.pack(pa.RecordBatch.from_pydict(given))
    assert packing.refusals == {1: r"who: expected text that UTF-8 can carry; got '\udcff'"}


def test_pack_of_instants_rounds_up_and_takes_any_unit() -> None:
    us = pa.array([1_000_001, None, -1], pa.timestamp("us", "UTC"))
    batch = pa.RecordBatch.from_arrays(
        [pa.array(["a", "b", "c"]), pa.array([b"x"] * 3), us], ["id", "body", "due_at"]
    )
    packing = Packer(limits("memory"), HORIZON_MS).pack(batch)
    assert [row and row.due.ms for row in packing.rows] == [1001, None, 0]
    assert packing.refusals.keys() == {1}


def test_pack_of_an_expiry_at_the_epoch_is_refused() -> None:
    expires = pa.array([0, 1], pa.timestamp("ms", "UTC"))
    batch = pa.RecordBatch.from_arrays(
        [pa.array(["a", "b"]), pa.array([b"x"] * 2), pa.array(["1s"] * 2), expires],
        ["id", "body", "delay", "expires"],
    )
    packing = Packer(limits("memory"), HORIZON_MS).pack(batch)
    assert packing.refusals == {0: "expires: expected epoch ms above 0; got 0"}


@given(given_rows=st.lists(rows, min_size=2, max_size=8), data=st.data())
def test_pack_of_a_slice_is_that_part_of_the_whole(
    given_rows: list[dict[str, Any]], data: st.DataObject
) -> None:
    first = data.draw(st.integers(0, len(given_rows) - 1))
    whole = batch_of(given_rows)
    packed = Packer(limits("kafka"), HORIZON_MS).pack(whole).rows
    assert Packer(limits("kafka"), HORIZON_MS).pack(whole.slice(first)).rows == packed[first:]
    assert Packer(limits("kafka"), HORIZON_MS).pack(whole.slice(0, first)).rows == packed[:first]


def test_headers_of_a_slice_are_its_own_as_map_and_as_list() -> None:
    pairs = [[("a", b"1")], None, [], [("b", b"2"), ("c", b"3")], [("d", b"4")]]
    of_map = pa.array(pairs, pa.map_(pa.string(), pa.binary()))
    structs = pa.struct([("name", pa.string()), ("value", pa.binary())])
    rows_of = [
        None if each is None else [{"name": n, "value": v} for n, v in each] for each in pairs
    ]
    for column in (of_map, pa.array(rows_of, pa.list_(structs))):
        batch = pa.RecordBatch.from_arrays([column], ["headers"])
        found = arrow.header_rows(batch.slice(1, 3))
        assert found == [None, (), (("b", b"2"), ("c", b"3"))]


@pytest.mark.parametrize("names", ["name value", "Value Name", "value KEY"])
def test_headers_of_structs_are_taken_by_the_names_of_fields(names: str) -> None:
    values = {"name": "a", "key": "a", "value": "1"}
    header = {name: values[name.lower()] for name in names.split()}
    batch = pa.RecordBatch.from_pylist([{"headers": [header]}])
    assert arrow.header_rows(batch) == [(("a", "1"),)]
    needed = pa.schema([(name, pa.string()) for name in ("id", "body", "delay")])
    check_columns(from_arrow_schema(pa.schema([*needed, *batch.schema])))


COLD_ROW = {
    "id": b"a",
    "due_at": 5_000,
    "expires_at": None,
    "remember_ms": 7_000,
    "content_hash": b"8 bytes:",
    "generation": 9,
    "blob": b"\0\x91\xc4\x01x",  # the body x
}


@pytest.mark.parametrize(
    "damage",
    [
        {"generation": -1},
        {"generation": None},
        {"content_hash": b"x"},
        {"blob": None},
        {"blob": b""},
        {"id": b"\xff"},
    ],
)
def test_pack_of_a_damaged_cold_row_refuses_it_and_takes_the_others(damage: dict[str, Any]) -> None:
    batch = pa.RecordBatch.from_pylist([COLD_ROW, COLD_ROW | damage])
    batch = batch.set_column(0, "id", batch["id"].view(pa.string()))
    packing = Packer(limits("memory"), HORIZON_MS).pack(batch)
    expected = PackedRow.new(
        "a", Instant(5_000, False), None, 7_000, b"8 bytes:" + COLD_ROW["blob"], 9
    )
    assert packing.rows == [expected, None]
    assert "expected a hash of 8 bytes" in packing.refusals[1]


def test_pack_of_packed_rows_beyond_the_limits_refuses_them_unless_they_are_trusted() -> None:
    """They may be another route's; hydrate's were accepted once."""
    given = [
        Envelope.new(b"x", id="good", delay="1h"),
        Envelope.new(b"x" * 300_000, id="large", delay="1h"),
        Envelope.new(b"x", id="astray", delay="1h", target=Target("memory", topic="private")),
    ]
    blobs = [pack(each).blob for each in given] + [b"\0damaged"]
    rows = [COLD_ROW | {"id": str(n), "blob": blob} for n, blob in enumerate(blobs)]
    batch = pa.RecordBatch.from_pylist(rows)
    packing = Packer(limits("memory"), HORIZON_MS).pack(batch)
    assert [row is not None for row in packing.rows] == [True, False, False, False]
    said = ["body: expected at most", "target: expected one", "blob of 8 bytes"]
    assert [
        text[: len(start)] for text, start in zip(packing.refusals.values(), said, strict=True)
    ] == said
    trusted = Packer(limits("memory"), HORIZON_MS, trusts_packed=True).pack(batch)
    assert None not in trusted.rows
