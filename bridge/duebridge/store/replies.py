"""What the scripts answer, as values; an envelope that cannot be read is set apart, never raised.

One unreadable record must not cost the envelopes that were claimed with it.
"""

from typing import Annotated, Any, NamedTuple, TypeAlias, TypeVar

import msgspec

from duebridge.errors import RecordDamaged, RecordTooNew, StoreError
from duebridge.store.codec import Content, unpack
from duebridge.store.poll import NONE, Poll
from duebridge.store.record import (
    FIRST_ATTEMPT,
    NOT_IN_FLIGHT,
    Flight,
    Record,
    read_flight,
    read_record,
)

T = TypeVar("T")
Count: TypeAlias = Annotated[int, msgspec.Meta(ge=0)]  # counters refuse to go down


def read_reply(reply: object, form: type[T]) -> T:
    """Return a reply as the values of its form; raises `StoreError` where it is of another."""
    try:
        return msgspec.convert(reply, form)
    except msgspec.ValidationError as error:
        raise StoreError(
            f"the delay store answered what no script of ours does: {error}"
        ) from error


def read_text(word: bytes) -> str:
    """Return a text of a reply; what is no UTF-8 of it is kept so that it can be sent back."""
    return word.decode(errors="surrogateescape")


class Scheduled(NamedTuple):
    """The store's answer for one envelope, and its due instant."""

    status: str
    due_at_ms: int


class Leased(msgspec.Struct, frozen=True, gc=False):
    """One envelope that the caller holds until its lease ends."""

    id: str
    record: Record
    flight: Flight
    content: Content


class Damaged(NamedTuple):
    """An envelope that the caller holds but cannot read: the reason, and the record as it is."""

    id: str
    error: RecordDamaged
    data: bytes

    @property
    def is_too_new(self) -> bool:
        """Whether only a newer duebridge can read it: it is left to one, never buried."""
        return isinstance(self.error, RecordTooNew)


class Claim(NamedTuple):
    """What one claim or shunt leased, all under one token; empty when there was nothing.

    `expired` are those that it buried instead, since their time was over.
    """

    poll: Poll
    token: bytes
    leased: list[Leased]
    damaged: list[Damaged]
    expired: int = 0

    @property
    def ids(self) -> list[str]:
        """The ids of all that the caller holds."""
        return [*(each.id for each in self.leased), *(each.id for each in self.damaged)]

    @property
    def held(self) -> int:
        """How many the caller holds."""
        return len(self.leased) + len(self.damaged)

    @property
    def taken(self) -> int:
        """How many it took out of ready: what has expired is dead."""
        return self.held + self.expired

    @property
    def size_bytes(self) -> int:
        """The blobs of those that can be read."""
        return sum(len(leased.record.blob) for leased in self.leased)

    def joined(self, later: "Claim") -> "Claim":
        """Return this and a later one under its token as one."""
        leased, damaged = self.leased + later.leased, self.damaged + later.damaged
        return Claim(later.poll, self.token, leased, damaged, self.expired + later.expired)


class Settled(NamedTuple):
    """The ids whose lease was lost, where nothing was changed.

    After a `repeated` call they may be the caller's own, settled by the call whose reply was lost.
    """

    poll: Poll
    stale: list[str]
    repeated: bool


class Entry(NamedTuple):
    """One envelope as the store has it; `score_ms` is what its state orders it by, -1 for never."""

    id: str
    state: str
    score_ms: int
    record: Record | None
    flight: Flight
    content: Content | None
    damage: str


class Page(NamedTuple):
    """Envelopes of one state; `cursor` begins the next page, None at the end."""

    entries: list[Entry]
    cursor: tuple[str, int] | None


class Stats(NamedTuple):
    """The poll and what people and gauges want beside it; -1 where there is no such instant.

    What is due waits to be delivered now, and is under nobody's lease. `scheduled` is how often an
    envelope was given a due instant: accepted, replaced, rescheduled or replayed, since the
    shard's first use. `journal_kept` is the newest entry that a table outside has, -1 for none.
    """

    poll: Poll
    due: int
    due_within_60s: int
    due_within_300s: int
    oldest_due_at_ms: int
    journal_entries: int
    memories: int
    scheduled: int
    journal_newest: int
    journal_kept: int

    @property
    def oldest_due_age_ms(self) -> int:
        """How long the oldest undelivered envelope has been due; 0 when none is."""
        if self.oldest_due_at_ms == NONE:
            return 0
        return max(0, self.poll.now_ms - self.oldest_due_at_ms)

    @property
    def journal_lag(self) -> int | None:
        """How many entries no table has yet; None where none was ever kept."""
        return (
            None if self.journal_kept == NONE else max(0, self.journal_newest - self.journal_kept)
        )

    @property
    def journal_left(self) -> int | None:
        """How many more entries until the cap cuts one that no table has.

        If they are as large as those here; None where none was ever kept, or nothing was cut yet.
        """
        if self.journal_lag is None or self.journal_newest <= self.journal_entries:
            return None
        return max(0, self.journal_entries - self.journal_lag)


class Counted(NamedTuple):
    """The poll, and how many envelopes were moved."""

    poll: Poll
    moved: Count


class Reclaimed(NamedTuple):
    """The poll, how many were taken back, and how many of those were buried as poison."""

    poll: Poll
    moved: Count
    poisoned: Count


class Demoted(NamedTuple):
    """How far a batch is demoted: the rows that are done, removed ones and void copies."""

    now_ms: int
    done: int
    removed: int
    void: int


class Lifted(NamedTuple):
    """How many tombstones and void copies were dropped."""

    now_ms: int
    dropped: int


class Stale(NamedTuple):
    """What a settling script answers."""

    poll: Poll
    ids: list[bytes]


class Found(NamedTuple):
    """What `get` answers; `state` is empty where the id is unknown."""

    now_ms: int
    state: bytes
    score_ms: int
    record: bytes
    flight: bytes


class _Leases(NamedTuple):
    poll: Poll
    token: bytes
    ids: list[bytes]
    records: list[bytes]
    flights: list[bytes]
    expired: Count = 0  # a shunt has none


class _Rows(NamedTuple):
    now_ms: int
    ids: list[bytes]
    scores_ms: list[int]
    records: list[bytes]
    flights: list[bytes]


def _in_rows(*columns: Any) -> list[tuple[Any, ...]]:
    try:
        return list(zip(*columns, strict=True))
    except ValueError as error:
        raise StoreError("the delay store answered rows that are not whole") from error


def read_scheduled(reply: object, count: int) -> list[Scheduled]:
    """Return the answers for `count` envelopes, which stand behind the time."""
    flat = read_reply(reply, list[int | bytes])
    rows = _in_rows(_words(flat[1::2], count), read_reply(flat[2::2], list[int]))
    return [Scheduled(*row) for row in rows]


def read_words(reply: object, count: int) -> list[str]:
    """Return `count` words, which stand behind the time."""
    return _words(read_reply(reply, list[int | bytes])[1:], count)


def _words(given: object, count: int) -> list[str]:
    words = read_reply(given, list[bytes])
    if len(words) != count:
        raise StoreError(f"the delay store gave {len(words)} answers instead of {count}")
    return [read_text(word) for word in words]


def read_claim(reply: object) -> Claim:
    """Return a claim's envelopes, those that cannot be read set apart."""
    poll, token, *columns, expired = read_reply(reply, _Leases)
    leased: list[Leased] = []
    damaged: list[Damaged] = []
    for id_bytes, record_bytes, flight_bytes in _in_rows(*columns):
        try:
            envelope_id = _id(id_bytes)
            record = read_record(record_bytes)
            flight = read_flight(flight_bytes) if flight_bytes else FIRST_ATTEMPT
            leased.append(Leased(envelope_id, record, flight, unpack(record.blob)))
        except RecordDamaged as error:
            damaged.append(Damaged(read_text(id_bytes), error, record_bytes))
    return Claim(poll, token, leased, damaged, expired)


def _id(id_bytes: bytes) -> str:
    try:
        return id_bytes.decode()
    except UnicodeDecodeError as error:
        raise RecordDamaged(f"id: expected UTF-8; got {id_bytes[:40]!r}") from error


def read_entry(id: str, state: str, score_ms: int, record: bytes, flight: bytes) -> Entry:  # noqa: A002
    """Return an entry; what cannot be read of it is None, and `damage` says why."""
    try:
        known = read_record(record)
        return Entry(id, state, score_ms, known, read_flight(flight), unpack(known.blob), "")
    except RecordDamaged as error:
        return Entry(id, state, score_ms, None, _known_flight(flight), None, str(error))


def _known_flight(flight: bytes) -> Flight:
    """Return what is known of its attempts: it was buried as damaged, and the flight says so."""
    try:
        return read_flight(flight)
    except RecordDamaged:
        return NOT_IN_FLIGHT


def read_page(state: str, reply: object) -> Page:
    """Return a page; its cursor is the last id and score."""
    _, *columns = read_reply(reply, _Rows)
    entries = [
        read_entry(read_text(id_bytes), state, score, record, flight)
        for id_bytes, score, record, flight in _in_rows(*columns)
    ]
    return Page(entries, (entries[-1].id, entries[-1].score_ms) if entries else None)
