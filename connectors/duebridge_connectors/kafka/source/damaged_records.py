"""Reads records with header names that are no UTF-8, for which kafka-python gives up a partition.

Only fetches with such a record take this way; all others go through kafka-python's own code alone.
tests/contract/kafka/test_kafka_source_damage.py fails if a release of it changes what is used here.
"""

from collections.abc import Iterable
from functools import partial
from typing import Any

from kafka.consumer.fetcher import Fetcher
from kafka.errors import CorruptRecordError
from kafka.record import MemoryRecords
from kafka.record.default_records import DefaultRecordBatch
from msgspec.structs import replace

from duebridge.ports.source import Arrival

SAID = "headers: expected names in UTF-8; each other byte is written as \\x.. here"


class DamagedRecords:
    """The places of records that were read with escaped header names, until they are arrivals."""

    def __init__(self) -> None:
        self._places: set[tuple[Any, int]] = set()

    def __bool__(self) -> bool:
        return bool(self._places)

    def watch(self, consumer: Any) -> None:
        """Have a `KafkaConsumer` read such records, too, and note them here."""
        consumer._fetcher.PartitionRecords = partial(FetchedRecords, self)

    def note(self, records: Iterable[Any]) -> None:
        """Note those that have an escaped name."""
        for each in records:
            if any(isinstance(name, EscapedName) for name, _ in each.headers):
                tp = (each.topic, each.partition)
                self._places.add((tp, each.offset))

    def marked(self, tp: Any, arrivals: Iterable[Arrival]) -> list[Arrival]:
        """Return the arrivals of a partition; those that were noted are unreadable."""
        return [self._marked((tuple(tp), each.handle[2]), each) for each in arrivals]

    def _marked(self, place: tuple[Any, int], arrival: Arrival) -> Arrival:
        if place not in self._places:
            return arrival
        self._places.remove(place)
        return replace(arrival, unreadable=SAID)


class FetchedRecords(Fetcher.PartitionRecords):  # type: ignore[misc]
    """What one fetch brought of a partition; read anew from a damaged record on."""

    def __init__(self, damaged: DamagedRecords, *place: Any, **given: Any) -> None:
        self._damaged = damaged
        self._is_escaping = False
        self._fetch = place, given
        super().__init__(*place, **given)

    def take(self, n: int | None = None) -> list[Any]:
        """Return up to so many records."""
        try:
            taken: list[Any] = super().take(n)
        except CorruptRecordError as error:
            if self._is_escaping or not isinstance(error.__context__, UnicodeDecodeError):
                raise
            self._read_anew()
            taken = super().take(n)
        if self._is_escaping:
            self._damaged.note(taken)
        return taken

    def _read_anew(self) -> None:
        (_, tp, records), given = self._fetch
        self._is_escaping = True
        first = max(self.fetch_offset, self.next_fetch_offset)  # what it skips moves the latter
        super().__init__(first, tp, EscapingRecords(records._buffer), **given)


class EscapingRecords(MemoryRecords):  # type: ignore[misc]
    """Batches whose records' header names are escaped where they are no UTF-8."""

    __slots__ = ()

    def next_batch(self) -> Any:
        """Return the next batch, None after the last."""
        batch = super().next_batch()
        return EscapingBatch(batch._buffer) if isinstance(batch, DefaultRecordBatch) else batch


class EscapingBatch(DefaultRecordBatch):  # type: ignore[misc]
    """A batch that cuts its records out of `EscapingBytes`."""

    _buffer: Any

    def _maybe_uncompress(self) -> None:
        super()._maybe_uncompress()
        self._buffer = EscapingBytes(self._buffer)


class EscapingBytes(bytearray):
    """Bytes whose slices decode into an `EscapedName` where they are no UTF-8."""

    def __getitem__(self, at: Any) -> Any:
        found = super().__getitem__(at)
        return EscapingBytes(found) if isinstance(found, bytearray) else found

    def decode(self, encoding: str = "utf-8", errors: str = "strict") -> str:
        """Return the text."""
        try:
            return super().decode(encoding, errors)
        except UnicodeDecodeError:
            return EscapedName(super().decode(encoding, "backslashreplace"))


class EscapedName(str):
    """A header's name that was no UTF-8."""

    __slots__ = ()
