"""A page that is read by column has the rows that were taken one by one."""

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from duebridge.envelope import Envelope
from duebridge.store.due_window import ANY_TIME, DueWindow
from duebridge.store.keys import Shard
from duebridge.store.wire.packed_page import PackedPage, RecordColumns, read_records
from duebridge.store.wire.poll import NONE
from duebridge.store.wire.record import NEWEST_LAYOUT, PREFIX, pack, read_record
from duebridge_connectors.spark.source.slices import RowSpan, _order
from duebridge_connectors.spark.source.store_reader import packed_batch

SHARD = Shard("n", "orders", 3)
WHOLE = RowSpan(SHARD, "pending")
rows = st.tuples(st.text(st.characters(codec="utf-8"), max_size=3), st.sampled_from([NONE, 5, 6]))
cuts = st.one_of(st.none(), rows)


def record(due_ms: int, generation: int = 1, expires_ms: int = 0, layout: int = 1) -> bytes:
    packed = pack(Envelope.new(b"body %d" % due_ms, id="a", at=due_ms))
    numbers = (due_ms, expires_ms, 7_000, 1_700_000_000_000, generation)
    halves = (half for number in numbers for half in (number >> 32, number & 2**32 - 1))
    return PREFIX.pack(layout, *halves, packed.content_hash) + packed.blob


@given(page=st.lists(rows, max_size=8, unique=True), until=cuts)
def test_span_counts_the_rows_of_a_page_up_to_its_end(
    page: list[tuple[str, int]], until: tuple[str, int] | None
) -> None:
    span = RowSpan(SHARD, "pending", None, until)
    page.sort(key=_order)
    count = span.count_in_page([name for name, _ in page], [score for _, score in page])
    assert count == sum(until is None or _order(row) <= _order(until) for row in page)
    assert all(span.ends_with(*row) for row in page[count:])


DAMAGED = [b"", b"\x01short", bytes([NEWEST_LAYOUT + 1]) + bytes(60)]


@pytest.mark.parametrize("others", [[], *([each] for each in DAMAGED)])
def test_records_by_column_are_the_records(others: list[bytes]) -> None:
    whole = [record(2**40 + number, number, number << 33, 1 + number % 2) for number in range(3)]
    found = read_records([*whole, *others])
    for at, name in enumerate(RecordColumns._fields):
        assert found[at] == [
            *(getattr(read_record(each), name) for each in whole),
            *([None] * len(others)),
        ]


def page_of(*records: bytes) -> PackedPage:
    ids = [f"id{number}" for number in range(len(records))]
    return PackedPage(ids, [5] * len(ids), "pending", read_records(records))


def test_batch_of_a_page_has_null_for_what_is_not_there() -> None:
    batch = packed_batch(WHOLE, ANY_TIME, page_of(record(1_800_000_000_000), b""))
    whole, damaged = batch.to_pylist()
    assert (whole["route"], whole["shard"], whole["state"]) == ("orders", 3, "pending")
    assert (whole["remember_ms"], whole["expires_at"]) == (7_000, None)
    assert batch.column("due_at").cast(pa.int64()).to_pylist() == [1_800_000_000_000_000, None]
    assert (damaged["id"], damaged["blob"], damaged["generation"]) == ("id1", None, None)


@pytest.mark.parametrize(
    ("window", "ids"),
    [(ANY_TIME, ["id0", "id1", "id2"]), (DueWindow(11), ["id1"]), (DueWindow(None, 10), ["id0"])],
)
def test_batch_of_a_page_has_what_is_due_within_the_window(
    window: DueWindow, ids: list[str]
) -> None:
    first, second = (1_800_000_000_000 + more for more in (10, 11))
    bounds = DueWindow(*(bound and bound + 1_800_000_000_000 for bound in window))
    batch = packed_batch(WHOLE, bounds, page_of(record(first), record(second), b""))
    assert batch.column("id").to_pylist() == ids


def test_batch_of_an_empty_page_is_empty() -> None:
    assert packed_batch(WHOLE, ANY_TIME, page_of()).num_rows == 0
