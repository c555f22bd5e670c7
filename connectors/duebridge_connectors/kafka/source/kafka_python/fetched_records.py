"""Reads fetched records in one loop: kafka-python's own costs twice as much, a third of an intake.

It also reads header names that are no UTF-8, for which kafka-python gives up a partition. All else
is read as kafka-python reads it: tests/unit/brokers/kafka/test_kafka_fetched_records.py compares
them.
The format: https://kafka.apache.org/documentation/#record
"""

from collections.abc import Iterator
from typing import Any

import msgspec
from kafka import IsolationLevel
from kafka.consumer.fetcher import Fetcher
from kafka.errors import CorruptRecordError, UnsupportedCodecError
from kafka.record.default_records import DefaultRecordBatch
from kafka.record.util import decode_varint

from duebridge.envelope import SHORT_BYTES
from duebridge_connectors.kafka.source.consumer import RecordFailed
from duebridge_connectors.kafka.source.kafka_python.decompression import (
    MOST_BYTES,
    BatchTooLarge,
    decompressed,
)

SAID = "headers: expected names in UTF-8; each other byte is written as \\x.. here"
NOT_SHORT = 0x81  # bits of a varint's first byte: it goes on, or is negative
MOST_NAMES = 4096

Header = tuple[str, bytes | None]
_names: dict[bytes, str] = {}  # they recur


class FetchedRecord(msgspec.Struct, frozen=True, gc=False):
    """A record; `unreadable` says why its headers are not just as they were sent."""

    epoch: int
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: tuple[Header, ...]
    unreadable: str


class PollFull(Exception):
    """The poll has brought enough; the rest is fetched again."""


class PollRoom:
    """The bytes that one poll may still decompress: many small batches may hold much together."""

    def __init__(self) -> None:
        self.begin()

    def begin(self) -> None:
        """Begin a poll."""
        self.left = MOST_BYTES


class FetchedRecords(Fetcher.PartitionRecords):  # type: ignore[misc]
    """The records that one fetch brought of a partition."""

    def __init__(self, *given: Any, room: PollRoom | None = None, **named: Any) -> None:
        self._room = room or PollRoom()
        super().__init__(*given, **named)

    def take(self, n: int | None = None) -> list[FetchedRecord]:
        """Return up to `n` records; after an error it is empty, so that its rest is fetched again.

        kafka-python's would look full for ever: a poll that finds it so never ends. Raises
        `RecordFailed`.
        """
        try:
            taken: list[FetchedRecord] = super().take(n)
        except CorruptRecordError as error:
            self.drain()
            part = self.topic_partition.partition
            raise RecordFailed(str(error), part, self.next_fetch_offset) from error
        except Exception:
            self.drain()
            raise
        return taken

    def _unpack_records(self, _: object, records: Any, *__: object) -> Iterator[FetchedRecord]:
        while (batch := records.next_batch()) is not None:
            if self._room.left <= 0:
                raise PollFull
            self._check(batch, batch.base_offset)
            if isinstance(batch, DefaultRecordBatch):
                self.leader_epoch = batch.leader_epoch
                if not self._is_left_out(batch):
                    yield from self._read(batch)
                self.next_fetch_offset = batch.next_offset  # its last record may be compacted away
            else:
                yield from self._read_old_format(batch)
        self.drain()

    def _check(self, part: Any, offset: int) -> None:
        if self.check_crcs and not part.validate_crc():
            where = f"partition {self.topic_partition}, offset {offset}"
            raise CorruptRecordError(f"{where}: the checksum does not fit")

    def _is_left_out(self, batch: DefaultRecordBatch) -> bool:
        """Return whether it is the mark of a transaction's end, or of one that was aborted."""
        if self.isolation_level == IsolationLevel.READ_COMMITTED and batch.has_producer_id():
            self._consume_aborted_transactions_up_to(batch.last_offset)
            if self._contains_abort_marker(batch):
                self.aborted_producer_ids.discard(batch.producer_id)
            elif self._is_batch_aborted(batch):
                return True
        return bool(batch.is_control_batch)

    def _read(self, batch: DefaultRecordBatch) -> Iterator[FetchedRecord]:
        found = self._decompressed(batch)
        if isinstance(found, str):
            yield self._unread(batch, found)
            return
        data, at = found
        self._room.left -= len(data)
        batch._buffer = b""  # not twice in memory
        first, first_ms, epoch = batch.base_offset, batch.first_timestamp, batch.leader_epoch
        appended_ms = batch.max_timestamp if batch.timestamp_type else None
        before = first - 1
        for most in self._most_offsets(batch):
            began = at
            try:
                size, start = decode_varint(data, at)
                since_ms, at = decode_varint(data, start + 1)  # after a byte of attributes
                since, at = decode_varint(data, at)
                key, at = _nullable(data, at)
                value, at = _nullable(data, at)
                headers, unreadable, at = _headers(data, at)
            except (ValueError, IndexError) as error:
                raise CorruptRecordError(f"invalid record: {error!r}") from error
            if at != start + size or at > len(data):
                raise CorruptRecordError(f"expected a record of {size} bytes; got {at - start}")
            offset = first + since
            if not before < offset <= most:
                unreadable = f"offset: expected {before + 1} to {most}; the record says {offset}"
                offset = before + 1
            before = offset
            self._count(offset, at - began)
            sent_ms = first_ms + since_ms if appended_ms is None else appended_ms
            yield FetchedRecord(epoch, offset, sent_ms, key, value, headers, unreadable)
        if at != len(data):
            raise CorruptRecordError(f"expected records of {len(data)} bytes; got {at}")

    def _decompressed(self, batch: DefaultRecordBatch) -> tuple[bytes, int] | str:
        """Return the records of a batch, and where they begin; or why it is refused."""
        try:
            return decompressed(batch, MOST_BYTES)
        except BatchTooLarge:
            return f"expected at most {MOST_BYTES} bytes"
        except (UnsupportedCodecError, MemoryError):
            raise
        except Exception as error:  # of the codec: the checksum fits, so it was sent like that
            return f"they do not decompress, {type(error).__name__}: {error}"

    def _unread(self, batch: DefaultRecordBatch, why: str) -> FetchedRecord:
        """Return a batch as one record: as it came, in its last one's place."""
        raw, last, sent_ms = bytes(batch._buffer), batch.last_offset, batch.max_timestamp
        self._room.left -= len(raw)
        self._count(last, len(raw))
        said = (
            f"{batch.records_count} records, compressed: {why}; the body is their batch as it came"
        )
        return FetchedRecord(batch.leader_epoch, last, sent_ms, None, raw, (), said)

    def _most_offsets(self, batch: DefaultRecordBatch) -> range:
        """Return the highest offset of each record: those after it need their own.

        A broker checks the batch's header, not what its records say of their offsets. Taken at its
        word, one would move the intake's place past later records, which would count as known.
        """
        count, last = batch.records_count, batch.last_offset
        if count > last - batch.base_offset + 1:
            raise CorruptRecordError(f"{count} records up to offset {last}, of {batch.base_offset}")
        return range(last - count + 1, last + 1)

    def _read_old_format(self, batch: Any) -> Iterator[FetchedRecord]:
        for record in batch:
            self._check(record, record.offset)
            self._count(record.offset, record.size_in_bytes)
            sent_ms = -1 if record.timestamp is None else record.timestamp  # format 0 has none
            yield FetchedRecord(-1, record.offset, sent_ms, record.key, record.value, (), "")

    def _count(self, offset: int, size: int) -> None:
        self.next_fetch_offset = offset + 1
        self.bytes_read += size
        self.records_read += 1


def _nullable(data: bytes, at: int) -> tuple[bytes | None, int]:
    size, at = decode_varint(data, at)
    return (None, at) if size < 0 else (data[at : at + size], at + size)


def _headers(data: bytes, at: int) -> tuple[tuple[Header, ...], str, int]:
    """Return headers, what they lack, and the end; no call for the usual: this is the hot loop."""
    count, at = decode_varint(data, at)
    if count < 0:
        raise ValueError(f"expected a number of headers; got {count}")
    headers: list[Header] = []
    unreadable = ""
    for _ in range(count):
        size = data[at]
        at += 1
        if size & NOT_SHORT:
            size, at = decode_varint(data, at - 1)
            if size < 0:
                raise ValueError(f"expected the size of a header's name; got {size}")
        else:
            size >>= 1
        start, at = at, at + size
        written = data[start:at]
        name = _names.get(written)
        if name is None:
            name, said = _name(written)
            unreadable = unreadable or said
        size = data[at]
        at += 1
        if size & NOT_SHORT:
            value, at = _nullable(data, at - 1)
        else:
            start, at = at, at + (size >> 1)
            value = data[start:at]
        headers.append((name, value))
    return tuple(headers), unreadable, at


def _name(written: bytes) -> tuple[str, str]:
    """Return a header's name, and why it is not just as it was sent."""
    try:
        name = written.decode()
    except UnicodeDecodeError:
        return written.decode(errors="backslashreplace"), SAID
    if len(_names) < MOST_NAMES and len(written) <= SHORT_BYTES:
        _names[written] = name
    return name, ""
