"""Fetched records are read as kafka-python reads them, but for header names that are no text."""

import gzip
import struct
import time
import tracemalloc
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from kafka import IsolationLevel, TopicPartition, codec
from kafka.consumer.fetcher import Fetcher
from kafka.errors import CorruptRecordError
from kafka.record import MemoryRecords
from kafka.record.default_records import DefaultRecordBatch, DefaultRecordBatchBuilder
from kafka.record.legacy_records import LegacyRecordBatchBuilder
from kafka.record.util import decode_varint

from duebridge_connectors.kafka.source.consumer import RecordFailed
from duebridge_connectors.kafka.source.kafka_python import decompression, fetched_records
from duebridge_connectors.kafka.source.kafka_python.fetched_records import (
    SAID,
    FetchedRecord,
    FetchedRecords,
    PollFull,
)
from tests.support.kafka.crafted import ATTRIBUTES_AT, LAST_AT, crafted, with_checksum

PLACE = TopicPartition("topic", 3)
RECORDS_AT = 61
LOG_APPEND_TIME, CONTROL = 0x08, 0x20
ABORT, COMMIT = b"\0\0\0\0", b"\0\0\0\1"
GZIP = 1

Row = tuple[int, bytes | None, bytes | None, Sequence[tuple[str, bytes | None]]]


class Batch(NamedTuple):
    """One batch of a log; `gap` is what compaction left out before it."""

    rows: list[Row]
    gap: int = 0
    codec: int = 0
    producer: int = -1
    flags: int = 0


def packed(batches: Sequence[Batch]) -> bytes:
    """Return batches as a broker sends them."""
    log, offset = bytearray(), 0
    for batch in batches:
        offset += batch.gap
        builder = DefaultRecordBatchBuilder(
            2, batch.codec, int(batch.producer >= 0), batch.producer, 0, 0, 10**6
        )
        for number, (ms, key, value, headers) in enumerate(batch.rows):
            assert builder.append(number, ms, key, value, list(headers)) is not None
        data = bytearray(builder.build())
        struct.pack_into(">q", data, 0, offset)
        struct.pack_into(">i", data, 12, 7)  # the leader's epoch
        data[ATTRIBUTES_AT + 1] |= batch.flags
        log += with_checksum(data)
        offset = DefaultRecordBatch(bytes(data)).next_offset
    return bytes(log)


def plain(record: Any) -> tuple[object, ...]:
    """Return a record of ours, or of kafka-python, which reads none that ours calls unreadable."""
    if isinstance(record, FetchedRecord):
        own: tuple[object, ...] = (record.epoch, record.timestamp_ms, record.unreadable)
    else:
        own = (record.leader_epoch, record.timestamp, "")
    return *own, record.offset, record.key, record.value, list(record.headers)


def read(kind: Any, log: bytes, takes: int, *, begin: int = 0, aborted: Sequence[int] = ()) -> Any:
    """Return what each `take` gave, the state after it, and the error at the end."""
    transactions = [SimpleNamespace(producer_id=each, first_offset=0) for each in aborted]
    part = kind(
        begin,
        PLACE,
        MemoryRecords(log),
        isolation_level=IsolationLevel.READ_COMMITTED,
        aborted_transactions=transactions,
    )
    found: list[Any] = []
    while part:
        try:
            rows = [plain(each) for each in part.take(takes)]
        except (CorruptRecordError, RecordFailed):
            return found, CorruptRecordError
        found.append((rows, part.next_fetch_offset, part.leader_epoch, part.records_read))
    return found, None


def both(log: bytes, takes: int, **given: Any) -> None:
    ours = read(FetchedRecords, log, takes, **given)
    assert ours == read(Fetcher.PartitionRecords, log, takes, **given)


names = st.text(max_size=8) | st.sampled_from(["x-delay", "n" * 200, "é" * 40])
values = st.none() | st.binary(max_size=100) | st.just(b"v" * 20_000)
headers = st.lists(st.tuples(names, values), max_size=6)
rows = st.tuples(st.integers(0, 2**42), values, values, headers)
batches = st.builds(
    Batch,
    st.lists(rows, min_size=1, max_size=5),
    st.integers(0, 3),
    st.sampled_from([0, GZIP]),
    st.sampled_from([-1, 5, 6]),
    st.sampled_from([0, LOG_APPEND_TIME]),
)


@given(st.lists(batches, max_size=5), st.integers(1, 7), st.integers(0, 6))
def test_take_of_any_records_returns_them_as_kafka_python_does(
    log: list[Batch], takes: int, begin: int
) -> None:
    both(packed(log), takes, begin=begin)


def test_take_of_transactions_leaves_out_their_marks_and_those_that_were_aborted() -> None:
    def sent(producer: int, value: bytes) -> Batch:
        return Batch([(1, None, value, [])], producer=producer)

    def mark(producer: int, what: bytes) -> Batch:
        return Batch([(1, what, b"", [])], producer=producer, flags=CONTROL)

    log = packed(
        [
            sent(5, b"aborted"),
            sent(6, b"committed"),
            mark(5, ABORT),
            sent(5, b"later"),
            mark(6, COMMIT),
            mark(5, COMMIT),
        ]
    )
    both(log, 10, aborted=[5])
    found, _ = read(FetchedRecords, log, 10, aborted=[5])
    assert [row[5] for rows, *_ in found for row in rows] == [b"committed", b"later"]


@given(batches.filter(lambda each: not each.codec), st.integers(0, 2**20), st.integers(0, 255))
def test_take_of_a_damaged_record_returns_what_kafka_python_does(
    batch: Batch, at: int, byte: int
) -> None:
    data = bytearray(packed([batch._replace(rows=batch.rows[:1])]))
    _, attributes_at = decode_varint(data, RECORDS_AT)
    data[RECORDS_AT + at % (len(data) - RECORDS_AT)] = byte
    assume(data[attributes_at] == 0)  # one byte, which kafka-python reads as a varint
    log = bytes(with_checksum(data))
    ours = read(FetchedRecords, log, 100)
    assume(all(said == "" for taken, *_ in ours[0] for _, _, said, *_ in taken))  # see below
    theirs = read(Fetcher.PartitionRecords, log, 100)
    assert ours == theirs or (ours[1] and theirs[1])


@pytest.mark.parametrize(
    ("deltas", "bad"),
    [
        ([0, 1, 2], []),
        ([0, 1000, 2], [1]),  # it would pass the records of later batches
        ([0, 0, 0], [1, 2]),
        ([2, 1, 0], [0, 2]),
        ([-7], [0]),
    ],
)
def test_take_of_records_that_state_false_offsets_places_them_by_their_order(
    deltas: Sequence[int], bad: Sequence[int]
) -> None:
    log = crafted(deltas, [b"%d" % delta for delta in deltas])
    part = FetchedRecords(0, PLACE, MemoryRecords(bytes(log)))
    found = part.take(9)
    assert [each.offset for each in found] == [*range(len(deltas))]
    assert [each.value for each in found] == [b"%d" % delta for delta in deltas]
    assert [number for number, each in enumerate(found) if each.unreadable] == bad
    assert part.next_fetch_offset == len(deltas)


def test_take_of_what_compaction_left_keeps_its_offsets() -> None:
    log = crafted([1, 4, 6], [b"1", b"4", b"6"])
    struct.pack_into(">i", log, LAST_AT, 9)
    found = FetchedRecords(0, PLACE, MemoryRecords(bytes(with_checksum(log)))).take(9)
    assert [(each.offset, each.unreadable) for each in found] == [(1, ""), (4, ""), (6, "")]


CODECS = {
    "gzip": (1, codec.has_gzip),
    "snappy": (2, codec.has_snappy),
    "lz4": (3, codec.has_lz4),
    "zstd": (4, codec.has_zstd),
}


@pytest.mark.parametrize("name", CODECS)
def test_take_of_a_batch_that_holds_too_much_returns_it_as_it_came(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    number, is_installed = CODECS[name]
    if not is_installed():
        pytest.skip(f"{name} is not installed")
    batch = bytes(crafted([0, 1, 2], [bytes(30_000)] * 3, number))
    whole = FetchedRecords(0, PLACE, MemoryRecords(batch)).take(9)
    assert [each.value for each in whole] == [bytes(30_000)] * 3
    monkeypatch.setattr(fetched_records, "MOST_BYTES", 90_000)
    part = FetchedRecords(0, PLACE, MemoryRecords(batch))
    (found,) = part.take(9)
    assert (found.offset, found.key, found.value, found.headers) == (2, None, batch, ())
    assert "3 records, compressed: expected at most 90000 bytes" in found.unreadable
    assert part.next_fetch_offset == 3


@pytest.mark.parametrize("name", CODECS)
def test_take_of_a_batch_that_does_not_decompress_returns_it_as_it_came(name: str) -> None:
    number, is_installed = CODECS[name]
    if not is_installed():
        pytest.skip(f"{name} is not installed")
    batch = crafted([0, 1], [b"0" * 999, b"1"], number)
    batch[RECORDS_AT:] = b"\x7f" * (len(batch) - RECORDS_AT)
    log = bytes(with_checksum(batch)) + packed([Batch([(1, None, b"next", [])], gap=2)])
    part = FetchedRecords(0, PLACE, MemoryRecords(log))
    refused, after = part.take(9)
    assert (refused.offset, refused.value, refused.headers) == (1, bytes(batch), ())
    assert "2 records, compressed: they do not decompress, " in refused.unreadable
    assert (after.offset, after.value, after.unreadable) == (2, b"next", "")


def test_take_of_gzip_in_many_members_ends_soon() -> None:
    batch, count = crafted([0], [bytes(1000)], GZIP), 150_000
    members = bytes(batch[RECORDS_AT:]) + gzip.compress(b"") * count
    began_at = time.monotonic()
    records = decompression._gzip(members, 2000)
    assert time.monotonic() - began_at < 10.0  # minutes if each member costs what is left
    assert records == gzip.decompress(members[: -20 * count])


def test_decompress_of_a_small_batch_reserves_little() -> None:
    for name, (number, is_installed) in CODECS.items():
        if is_installed():
            batch = DefaultRecordBatch(bytes(crafted([0], [bytes(1000)], number)))
            tracemalloc.start()
            records, _ = decompression.decompressed(batch, decompression.MOST_BYTES)
            _, most = tracemalloc.get_traced_memory()
            tracemalloc.stop()
            assert len(records) > 1000
            assert most < 2**20, name


def test_take_of_batches_that_hold_much_together_leaves_the_rest_to_the_next_poll(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(fetched_records, "MOST_BYTES", 50_000)
    log = packed([Batch([(1, None, bytes(30_000), [])], codec=GZIP)] * 3)
    part = FetchedRecords(0, PLACE, MemoryRecords(log))
    assert [each.offset for each in part.take(9)] == [0, 1]
    with pytest.raises(PollFull):
        part.take(9)
    assert (part.next_fetch_offset, bool(part)) == (2, False)


def test_take_of_a_batch_with_a_wrong_checksum_raises() -> None:
    data = bytearray(packed([Batch([(1, None, b"body", [])])]))
    data[-3] ^= 1
    assert read(FetchedRecords, bytes(data), 9) == ([], CorruptRecordError)


def test_take_of_a_record_that_was_cut_returns_nothing_of_it() -> None:
    data = bytearray(packed([Batch([(1, None, b"body", [("name", b"value")])])]))[:-2]
    struct.pack_into(">i", data, 8, len(data) - 12)
    assert read(FetchedRecords, bytes(with_checksum(data)), 9) == ([], CorruptRecordError)


def test_take_that_raises_after_records_leaves_nothing_that_a_poll_would_wait_for() -> None:
    good = Batch([(1, None, b"body", [])])
    log = bytearray(packed([good, good]))
    log[-3] ^= 1
    part = FetchedRecords(0, PLACE, MemoryRecords(bytes(log)))
    assert [each.offset for each in part.take(5)] == [0]
    with pytest.raises(RecordFailed, match="offset 1: the checksum") as raised:
        part.take(5)
    assert (raised.value.part, raised.value.offset) == (PLACE.partition, 1)
    assert not part
    assert part.next_fetch_offset == 1


def old_format(magic: int) -> bytes:
    builder = LegacyRecordBatchBuilder(magic, 0, 10**6)
    for number in range(3):
        builder.append(number, 1000 + number, b"key", b"%d" % number)
    return bytes(builder.build())


def test_take_of_records_of_an_old_format_returns_them() -> None:
    both(old_format(1), 2)


def test_take_of_records_of_the_oldest_format_gives_those_of_no_time() -> None:
    found = FetchedRecords(0, PLACE, MemoryRecords(old_format(0))).take(5)
    assert [(each.value, each.timestamp_ms) for each in found] == [
        (b"0", -1),
        (b"1", -1),
        (b"2", -1),
    ]


def test_take_of_a_header_name_that_is_no_text_says_so_each_time() -> None:
    log = packed([Batch([(1, None, b"", [("naïve", b"1")])] * 2)])
    broken = with_checksum(bytearray(log.replace("ï".encode(), b"\xff\xfe")))
    for _ in range(2):
        part = FetchedRecords(0, PLACE, MemoryRecords(bytes(broken)))
        found = part.take(5)
        assert [each.headers for each in found] == [(("na\\xff\\xfeve", b"1"),)] * 2
        assert [each.unreadable for each in found] == [SAID] * 2
