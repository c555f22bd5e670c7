"""The answers of the scripts, as values; those of a lease are in `leases`."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Annotated, Any, Literal, NamedTuple, TypeAlias, TypeVar, get_args

import msgspec

from duebridge.errors import RecordDamaged, StoreError
from duebridge.store.wire.poll import Poll, Stats
from duebridge.store.wire.record import (
    NOT_IN_FLIGHT,
    EnvelopeContent,
    Flight,
    Record,
    read_flight,
    read_record,
    unpack,
)
from duebridge.store.wire.transitions import Decision

T = TypeVar("T")
Count: TypeAlias = Annotated[int, msgspec.Meta(ge=0)]  # counters refuse to go down

State: TypeAlias = Literal["pending", "ready", "unack", "retry", "dead"]
Refusal: TypeAlias = Literal["too_far", "expires_before_due"]
ScheduleAnswer: TypeAlias = (
    Literal["accepted", "duplicate", "conflict", "replaced", "in_flight", "cancelled", "dead"]
    | Literal["refused"]
    | Refusal
)
CancelAnswer: TypeAlias = Literal["cancelled", "in_flight", "dead", "unknown", "recorded"]
MoveAnswer: TypeAlias = Literal["rescheduled", "in_flight", "dead", "unknown", "recorded"]
ReplayAnswer: TypeAlias = Literal["replayed", "in_flight", "unknown"]
DropAnswer: TypeAlias = Literal["dropped", "in_flight", "unknown"]
ChangeAnswer: TypeAlias = CancelAnswer | MoveAnswer | Refusal


def read_reply(reply: object, form: type[T]) -> T:
    """Return a reply as values of a type; raises `StoreError` where it has another form."""
    try:
        return msgspec.convert(reply, form)
    except msgspec.ValidationError as error:
        raise StoreError(f"unexpected reply from the delay store: {error}") from error


def read_text(word: bytes) -> str:
    """Return text of a reply; bytes that are not UTF-8 are kept, so that they can be sent back."""
    return word.decode(errors="surrogateescape")


class ScheduleReply(NamedTuple):
    """The store's answer for one envelope, and its due instant.

    `duplicate`, `cancelled` and `dead` are what became of a remembered id; `cancelled` is also the
    answer for a cold row that a tombstone binds. `refused` is a `log_positions.refused_row`'s.
    """

    status: ScheduleAnswer
    due_at_ms: int


class RescheduleReply(NamedTuple):
    """The answer of a reschedule, and the due instant that it asked for."""

    status: MoveAnswer | Refusal
    due_at_ms: int


class SettleReply(NamedTuple):
    """The answer of a settling call: the stale ids, whose lease was lost and which did not change.

    After a `repeated` call they may have been settled by the call whose reply was lost. `marked`
    are those that a cancel ends instead.
    """

    poll: Poll
    stale: list[str]
    repeated: bool
    marked: list[str]

    def applied(self, decisions: Sequence[Decision]) -> Sequence[Decision]:
        """Return those of the call's decisions that the store carried out.

        Stale ones of a repeated call are among them: their first call was most likely carried out.
        """
        if not self.stale and not self.marked:
            return decisions
        others = {*self.marked, *(() if self.repeated else self.stale)}
        return [each for each in decisions if each.id not in others]


class Entry(NamedTuple):
    """One stored envelope; `score_ms` is its score in the index of its state, -1 for never."""

    id: str
    state: State
    score_ms: int
    record: Record | None
    flight: Flight
    content: EnvelopeContent | None
    damage: str


class Page(NamedTuple):
    """A page of the envelopes of one state; `cursor` begins the next page, None at the end."""

    entries: list[Entry]
    cursor: tuple[str, int] | None


class MoveReply(NamedTuple):
    """The poll, and how many envelopes were moved."""

    poll: Poll
    moved: Count


class ResumeReply(NamedTuple):
    """The poll, how many were resumed, and the cursor of the next call, None at the end."""

    poll: Poll
    moved: Count
    cursor: tuple[str, str] | None


class ReclaimReply(NamedTuple):
    """The poll, how many were taken back, and how many of those were buried as poison."""

    poll: Poll
    moved: Count
    poisoned: Count


class DemoteReply(NamedTuple):
    """The progress of a batch's demotion: rows done, of these removed, and void."""

    now_ms: int
    done: int
    removed: int
    void: int


class KeepReply(NamedTuple):
    """The number of refused messages that were stored as dead."""

    now_ms: int
    kept: int


class LiftReply(NamedTuple):
    """The number of tombstones and void copies that were dropped."""

    now_ms: int
    dropped: int


class MarkReply(NamedTuple):
    """The ids whose rows do not count, since they live in the store."""

    now_ms: int
    void: list[bytes]


class SiftReply(NamedTuple):
    """The number of ids in the new filter."""

    now_ms: int
    marked: int


class OccupyReply(NamedTuple):
    """Whether the caller has the lease of the cold tier; who has it, since when and until when."""

    now_ms: int
    did: int
    who: bytes
    since_ms: int
    until_ms: int


NoteName: TypeAlias = Literal["hydrated_until", "hydrating_until", "journal_kept", "cold_kept"]
NoteMode: TypeAlias = Literal["set", "first", "rise"]


class WatchReply(NamedTuple):
    """The holder of the shard's gauge lease, and its time left."""

    poll: Poll
    left_ms: int
    is_mine: int


class HistogramReply(NamedTuple):
    """The number of pending and of retry envelopes that fall due in each bucket."""

    now_ms: int
    pending: list[Count]
    retry: list[Count]


class DoneReply(NamedTuple):
    """Whether the call changed anything: a note, the counters, the lease of the cold tier."""

    now_ms: int
    did: int


class GenerationReply(NamedTuple):
    """A new generation."""

    now_ms: int
    generation: int


class OpenReply(NamedTuple):
    """The life that a shard had before, empty for none."""

    now_ms: int
    life: bytes


class EntryReply(NamedTuple):
    """A route as it is registered: LAYOUT:SHARDS and the epoch; empty if it is not."""

    value: bytes
    epoch: bytes


class StaleReply(NamedTuple):
    """The reply of a settling script; `marked` only where a pending cancel ends an envelope."""

    poll: Poll
    ids: list[bytes]
    marked: Sequence[bytes] = ()


class FoundReply(NamedTuple):
    """The reply of `get`; `state` is empty where the id is unknown."""

    now_ms: int
    state: bytes
    score_ms: int
    record: bytes
    flight: bytes


class _ResumedReply(NamedTuple):
    poll: Poll
    moved: Count
    cursor_id: bytes
    cursor_score: bytes


class PageReply(NamedTuple):
    """A page of a state, by column."""

    now_ms: int
    ids: list[bytes]
    scores_ms: list[int]
    records: list[bytes]
    flights: list[bytes]


def in_rows(*columns: Any) -> list[tuple[Any, ...]]:
    """Return columns as rows; raises `StoreError` where their lengths differ."""
    try:
        return list(zip(*columns, strict=True))
    except ValueError as error:
        raise StoreError(
            "unexpected reply from the delay store: columns of unequal length"
        ) from error


def _by_bytes(*closed: Any) -> Mapping[bytes, Any]:
    return {word.encode(): word for answers in closed for word in get_args(answers)}


_STATES = _by_bytes(State)
_SCHEDULED = _by_bytes(*get_args(ScheduleAnswer))
_RESCHEDULED = _by_bytes(MoveAnswer, Refusal)
_CANCELLED = _by_bytes(CancelAnswer)
_REPLAYED = _by_bytes(ReplayAnswer)
_DROPPED = _by_bytes(DropAnswer)


def read_scheduled(reply: object, count: int) -> list[ScheduleReply]:
    """Return the answers for the first of `count` envelopes, which stand behind the time."""
    flat = read_reply(reply, list[int | bytes])
    answers = _closed(flat[1::2], _SCHEDULED, count)
    due_at_ms = read_reply(flat[2::2], list[int])
    return [*map(ScheduleReply._make, in_rows(answers, due_at_ms))]


def read_rescheduled(reply: object) -> RescheduleReply:
    """Return the answer of a reschedule."""
    _, answer, due_at_ms = read_reply(reply, tuple[int, bytes, int])
    return RescheduleReply(_closed([answer], _RESCHEDULED, 1)[0], due_at_ms)


def read_cancelled(reply: object) -> CancelAnswer:
    """Return the answer of a cancel."""
    answers: list[CancelAnswer] = _behind_the_time(reply, _CANCELLED, 1)
    return answers[0]


def read_replayed(reply: object, count: int) -> list[ReplayAnswer]:
    """Return the answers for the first of `count` ids, which stand behind the time."""
    return _behind_the_time(reply, _REPLAYED, count)


def read_dropped(reply: object, count: int) -> list[DropAnswer]:
    """Return the answers for the first of `count` ids, which stand behind the time."""
    return _behind_the_time(reply, _DROPPED, count)


def read_state(word: bytes) -> State:
    """Return the name of a state."""
    state: State = _closed([word], _STATES, 1)[0]
    return state


def _behind_the_time(reply: object, closed: Mapping[bytes, Any], count: int) -> list[Any]:
    return _closed(read_reply(reply, list[int | bytes])[1:], closed, count)


def _closed(given: object, closed: Mapping[bytes, Any], count: int) -> list[Any]:
    """Return words of a closed set, at most `count` and one at least; raises `StoreError`."""
    words = read_reply(given, list[bytes])
    if not min(1, count) <= len(words) <= count:
        raise StoreError(f"expected {count} answers of the delay store; got {len(words)}")
    try:
        return [closed[word] for word in words]
    except KeyError as error:
        raise StoreError(f"unexpected answer of the delay store: {error.args[0]!r}") from error


def read_resumed(reply: object) -> ResumeReply:
    """Return the answer of a resume."""
    poll, moved, cursor_id, cursor_score = read_reply(reply, _ResumedReply)
    return ResumeReply(poll, moved, read_cursor(cursor_id, cursor_score))


def read_cursor(id_bytes: bytes, score: bytes) -> tuple[str, str] | None:
    """Parse the cursor at which a search continues; None at its end."""
    return (read_text(id_bytes), score.decode()) if score else None


def read_histogram(reply: object, buckets: int) -> HistogramReply:
    """Return the counts of so many buckets; raises `StoreError` where their number differs."""
    found = read_reply(reply, HistogramReply)
    if (len(found.pending), len(found.retry)) != (buckets, buckets):
        raise StoreError(f"expected {buckets} counts of the delay store; got {found}")
    return found


def read_entry(id: str, state: State, score_ms: int, record: bytes, flight: bytes) -> Entry:  # noqa: A002
    """Return an entry; parts that cannot be read are None, and `damage` says why."""
    try:
        known = read_record(record)
        return Entry(id, state, score_ms, known, read_flight(flight), unpack(known.blob), "")
    except RecordDamaged as error:
        return Entry(id, state, score_ms, None, _known_flight(flight), None, str(error))


def _known_flight(flight: bytes) -> Flight:
    """Return the flight of a damaged envelope, which says how it was buried."""
    try:
        return read_flight(flight)
    except RecordDamaged:
        return NOT_IN_FLIGHT


def read_page(state: State, reply: object) -> Page:
    """Return a page; its cursor is the last id and score."""
    _, *columns = read_reply(reply, PageReply)
    entries = [
        read_entry(read_text(id_bytes), state, score, record, flight)
        for id_bytes, score, record, flight in in_rows(*columns)
    ]
    return Page(entries, (entries[-1].id, entries[-1].score_ms) if entries else None)


def build_reply_types(*forms: object) -> None:
    """Have msgspec build its converters of reply types before there are threads.

    Two threads that convert to a new type at once may end the process (SIGSEGV, msgspec 0.22.0).
    """
    for form in forms:
        if isinstance(form, type) and issubclass(form, tuple):
            with suppress(msgspec.ValidationError):
                msgspec.convert((), form)


build_reply_types(Stats, *globals().values())
