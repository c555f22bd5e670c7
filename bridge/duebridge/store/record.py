"""A record's prefix and a flight, read from the bytes that the scripts write.

The layouts are lua/shared/record.lua's and flight.lua's; six-byte integers are read as 2 + 4.
"""

from struct import Struct

import msgspec

from duebridge.errors import RecordDamaged, RecordTooNew

LAYOUT = 1
_PREFIX = Struct(">BHIHIHIHIHI8s")
_FLIGHT = Struct(">12sHIIHHHHBBBBBHIHI")


class Record(msgspec.Struct, frozen=True, gc=False):
    """What the store keeps of an envelope; instants in epoch ms, 0 where there is none."""

    due_at_ms: int
    expires_at_ms: int
    remember_ms: int
    scheduled_at_ms: int
    generation: int
    content_hash: bytes
    blob: bytes


class Flight(msgspec.Struct, frozen=True, gc=False):
    """What only an envelope in flight has; counts are since accept or replay, but for `attempt`."""

    attempt: int
    failures: int = 0
    retries: int = 0
    expiries: int = 0
    singles: int = 0
    unsure: bool = False
    cancel: bool = False
    shunting: bool = False
    reason: int = 0
    first_failed_at_ms: int = 0
    last_failed_at_ms: int = 0
    error_class: str = ""
    error_message: str = ""


NOT_IN_FLIGHT = Flight(attempt=0)
FIRST_ATTEMPT = Flight(attempt=1)


def read_record(data: bytes) -> Record:
    """Return the record; raises `RecordTooNew` or `RecordDamaged` where it cannot be read."""
    if data[:1] > bytes([LAYOUT]):
        raise RecordTooNew(f"record: expected layout {LAYOUT} or older; got {data[0]}")
    if data[:1] != bytes([LAYOUT]) or len(data) < _PREFIX.size:
        raise RecordDamaged(f"record: expected layout {LAYOUT} and a prefix; got {data[:40]!r}")
    _, d, due, e, expires, r, remember, s, scheduled, g, generation, content_hash = (
        _PREFIX.unpack_from(data)
    )
    return Record(
        d << 32 | due,
        e << 32 | expires,
        r << 32 | remember,
        s << 32 | scheduled,
        g << 32 | generation,
        content_hash,
        data[_PREFIX.size :],
    )


def read_flight(data: bytes) -> Flight:
    """Return the flight, `NOT_IN_FLIGHT` for none; raises `RecordDamaged` if it cannot be read."""
    if not data:
        return NOT_IN_FLIGHT
    if len(data) < _FLIGHT.size:
        raise RecordDamaged(f"flight: expected {_FLIGHT.size} bytes or more; got {len(data)}")
    values = _FLIGHT.unpack_from(data)
    attempt, failures, retries, expiries, singles = values[3:8]
    unsure, cancel, _single, shunting, reason, f, first, last_high, last = values[8:]
    error_class, _, message = data[_FLIGHT.size :].decode(errors="replace").partition("\n")
    return Flight(
        attempt,
        failures,
        retries,
        expiries,
        singles,
        bool(unsure),
        bool(cancel),
        bool(shunting),
        reason,
        f << 32 | first,
        last_high << 32 | last,
        error_class,
        message,
    )
