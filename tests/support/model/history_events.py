"""The events that the processes of a run write, and the `History` that they add up to."""

from collections.abc import Collection, Iterable
from enum import StrEnum

import msgspec

from duebridge.audit import AcceptedEnvelope, ArrivedEnvelope, History


class Subject(StrEnum):
    """The subject of an event: a call, a message at a broker, a dumped envelope or a fault."""

    SCHEDULE = "schedule"
    CANCEL = "cancel"
    RESCHEDULE = "reschedule"
    TARGET = "target"
    DEAD_LETTER = "dead_letter"
    STORE = "store"
    FAULT = "fault"


class Phase(StrEnum):
    """The phase of a call: `invoke` before; after it `ok`, `fail` (no effect), `info` (unknown)."""

    INVOKE = "invoke"
    OK = "ok"
    FAIL = "fail"
    INFO = "info"


MISPLACED = "misplaced"


class HistoryEvent(msgspec.Struct, frozen=True, omit_defaults=True):
    """One line of a process's history; instants in epoch ms.

    `at_ms` is the time of writing or, for a message, of its arrival by the broker's clock.
    `due_at_ms` is the due instant of the receipt, the one requested by a reschedule, or that of a
    message's header x-due-at. `answer` is the reply to the call, the state of a dumped envelope,
    the description of a fault, or MISPLACED of a message where it does not belong.
    """

    at_ms: int
    subject: Subject
    phase: Phase
    id: str
    due_at_ms: int = 0
    answer: str = ""
    fingerprint: str = ""


def history_of(events: Iterable[HistoryEvent]) -> History:
    """Merge the histories of all processes; events of one id must be in chronological order.

    A call without an answer may have taken effect: its envelope may or may not arrive (schedule,
    cancel), or counts as due at the earlier instant (reschedule). An id is used once per run.
    """
    book = _Book()
    for event in events:
        book.enter(event)
    return History(
        accepted=list(book.accepted.values()),
        delivered=book.arrived[Subject.TARGET],
        dead=book.arrived[Subject.DEAD_LETTER],
        cancelled=frozenset(book.cancelled),
        excused=frozenset(book.excused | book.asked),
        attempted=frozenset(book.attempted - book.accepted.keys()),
        held=book.held,
        sent=book.sent,
    )


def _arrived(event: HistoryEvent) -> ArrivedEnvelope:
    is_misplaced = event.answer == MISPLACED
    return ArrivedEnvelope(event.id, event.at_ms, event.fingerprint, event.due_at_ms, is_misplaced)


class _Book:
    """The state of a history while its events are read."""

    def __init__(self) -> None:
        self.accepted: dict[str, AcceptedEnvelope] = {}
        self.attempted: set[str] = set()
        self.asked: set[str] = set()
        self.cancelled: set[str] = set()
        self.excused: set[str] = set()
        self.held: dict[str, str] = {}
        self.arrived: dict[Subject, list[ArrivedEnvelope]] = {
            Subject.TARGET: [],
            Subject.DEAD_LETTER: [],
        }
        self.sent: dict[str, str] = {}
        self._due_before: dict[str, int] = {}

    def enter(self, event: HistoryEvent) -> None:
        match event.subject:
            case Subject.SCHEDULE:
                self._schedule(event)
            case Subject.CANCEL:
                self._cancel(event)
            case Subject.RESCHEDULE:
                self._reschedule(event)
            case Subject.STORE:
                self.held[event.id] = event.answer
            case Subject.TARGET | Subject.DEAD_LETTER:
                self.arrived[event.subject].append(_arrived(event))
            case Subject.FAULT:
                pass

    def _schedule(self, event: HistoryEvent) -> None:
        if event.phase is Phase.INVOKE:
            self.attempted.add(event.id)
            self.sent[event.id] = event.fingerprint
        elif event.phase is Phase.FAIL:
            self.attempted.discard(event.id)
        elif event.answer in ("accepted", "duplicate", "replaced"):
            sent = self.sent.get(event.id, "")
            self.accepted[event.id] = AcceptedEnvelope(
                event.id, event.due_at_ms, sent, self._dues(event)
            )

    def _cancel(self, event: HistoryEvent) -> None:
        if event.phase is Phase.INVOKE:
            self.asked.add(event.id)
        elif event.phase in (Phase.OK, Phase.FAIL):
            self.asked.discard(event.id)
        if event.answer == "cancelled":
            self.cancelled.add(event.id)
        elif event.answer == "in_flight":
            self.excused.add(event.id)

    def _reschedule(self, event: HistoryEvent) -> None:
        old = self.accepted.get(event.id)
        if old is None:
            return
        if event.phase is Phase.INVOKE:
            self._due_before[event.id] = old.due_at_ms
            due_at_ms = min(old.due_at_ms, event.due_at_ms)
        elif event.phase is Phase.INFO:
            due_at_ms = old.due_at_ms
        elif event.answer == "rescheduled":
            due_at_ms = event.due_at_ms
        else:
            due_at_ms = self._due_before.get(event.id, old.due_at_ms)
        self.accepted[event.id] = AcceptedEnvelope(
            event.id, due_at_ms, old.fingerprint, self._dues(event)
        )

    def _dues(self, event: HistoryEvent) -> frozenset[int]:
        """Return every instant at which the envelope may have been due, that of the event too."""
        old = self.accepted.get(event.id)
        known = frozenset() if old is None else old.dues | {old.due_at_ms}
        return known | {event.due_at_ms} if event.due_at_ms else known


def whole_histories(
    events: Iterable[HistoryEvent], ids: Collection[str]
) -> dict[str, list[HistoryEvent]]:
    """Return all events of the given ids, for diagnosis."""
    stories: dict[str, list[HistoryEvent]] = {each: [] for each in ids}
    for event in events:
        if event.id in stories:
            stories[event.id].append(event)
    return stories
