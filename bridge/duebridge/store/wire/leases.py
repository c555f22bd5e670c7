"""Parses the envelopes that a claim, a probe or a shunt leased.

An envelope that cannot be read is set apart and never raised: it must not cost the envelopes that
were claimed with it.
"""

from collections.abc import Iterator
from typing import NamedTuple

import msgspec

from duebridge.errors import RecordDamaged, RecordTooNew
from duebridge.store.wire.poll import Poll
from duebridge.store.wire.record import (
    FIRST_ATTEMPT,
    EnvelopeContent,
    Flight,
    Record,
    decoded_size,
    read_flight,
    read_record,
    unpack,
)
from duebridge.store.wire.replies import (
    Count,
    build_reply_types,
    in_rows,
    read_cursor,
    read_reply,
    read_text,
)


class LeasedEnvelope(msgspec.Struct, frozen=True, gc=False):
    """An envelope that the caller holds until its lease ends."""

    id: str
    record: Record
    flight: Flight
    content: EnvelopeContent


class DamagedEnvelope(NamedTuple):
    """An envelope that the caller holds but cannot read; `data` is its record as stored."""

    id: str
    error: RecordDamaged
    data: bytes

    @property
    def is_too_new(self) -> bool:
        """Whether only a newer duebridge can read it; such an envelope is never buried."""
        return isinstance(self.error, RecordTooNew)


class Claim(NamedTuple):
    """The envelopes that one claim, probe or shunt leased, under one token.

    `expired` counts the envelopes that it buried instead, because they had expired. `decoded_bytes`
    is the size of `leased` in memory; `surplus` has the ids for which there was no room.
    """

    poll: Poll
    token: bytes
    leased: list[LeasedEnvelope]
    damaged: list[DamagedEnvelope]
    expired: int = 0
    decoded_bytes: int = 0
    surplus: tuple[str, ...] = ()

    @property
    def ids(self) -> list[str]:
        """The ids of all envelopes that the caller holds."""
        damaged = (each.id for each in self.damaged)
        return [*(each.id for each in self.leased), *damaged, *self.surplus]

    @property
    def held(self) -> int:
        """The number of envelopes that the caller holds."""
        return len(self.leased) + len(self.damaged) + len(self.surplus)

    @property
    def taken(self) -> int:
        """The number of envelopes that left ready, expired ones included."""
        return self.held + self.expired

    @property
    def size_bytes(self) -> int:
        """The bytes of the blobs that can be read."""
        return sum(len(leased.record.blob) for leased in self.leased)

    def joined(self, later: "Claim") -> "Claim":
        """Return this claim merged with a later one under the same token."""
        return Claim(
            later.poll,
            self.token,
            self.leased + later.leased,
            self.damaged + later.damaged,
            self.expired + later.expired,
            self.decoded_bytes + later.decoded_bytes,
            self.surplus + later.surplus,
        )


class ProbeReply(NamedTuple):
    """The envelopes that a probe leased, and the cursor of the next call, None at the end."""

    claim: Claim
    cursor: tuple[str, str] | None


class _LeaseReply(NamedTuple):
    poll: Poll
    token: bytes
    ids: list[bytes]
    records: list[bytes]
    flights: list[bytes]
    expired: Count = 0  # a shunt has none
    cursor_id: bytes = b""  # a probe's
    cursor_score: bytes = b""


def read_claim(reply: object, decoded_bytes: int) -> Claim:
    """Return a claim; envelopes that cannot be read are set apart, and those without room."""
    return _claim(read_reply(reply, _LeaseReply), decoded_bytes)


def read_probe(reply: object) -> ProbeReply:
    """Parse the reply of a probe."""
    found = read_reply(reply, _LeaseReply)
    cursor = read_cursor(found.cursor_id, found.cursor_score)
    return ProbeReply(_claim(found, 0), cursor)


def give_back(name: str, reply: object) -> Iterator[tuple[str, list[bytes | str | int]]]:
    """Yield the script that ends what a claim, probe or shunt leased, at once and uncounted."""
    found = read_reply(reply, _LeaseReply)
    if found.ids and name == "shunt":
        ends = [part for each in found.ids for part in (each, 0, 0, "")]
        yield "postpone", [found.token, "", len(found.ids), *ends]  # no target rejected any
    elif found.ids:
        yield "release", [found.token, len(found.ids), *found.ids]


def _claim(found: _LeaseReply, decoded_bytes: int) -> Claim:
    leased: list[LeasedEnvelope] = []
    damaged: list[DamagedEnvelope] = []
    surplus: list[str] = []
    used = 0
    rows = in_rows(found.ids, found.records, found.flights)
    for id_bytes, record_bytes, flight_bytes in rows:
        try:
            envelope_id = _id(id_bytes)
            record = read_record(record_bytes)
            size = decoded_size(record.blob)
            if leased and used + size > decoded_bytes:
                surplus.append(envelope_id)
                continue
            flight = read_flight(flight_bytes) if flight_bytes else FIRST_ATTEMPT
            leased.append(LeasedEnvelope(envelope_id, record, flight, unpack(record.blob)))
            used += size
        except RecordDamaged as error:
            damaged.append(DamagedEnvelope(read_text(id_bytes), error, record_bytes))
    return Claim(found.poll, found.token, leased, damaged, found.expired, used, tuple(surplus))


def _id(id_bytes: bytes) -> str:
    try:
        return id_bytes.decode()
    except UnicodeDecodeError as error:
        raise RecordDamaged(f"id: expected UTF-8; got {id_bytes[:40]!r}") from error


build_reply_types(*globals().values())
