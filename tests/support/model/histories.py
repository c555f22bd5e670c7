"""What the processes of a run did to each envelope: events, on disk, and their `History`.

Also of what commit, on what machine.
"""

import os
import subprocess
import time
from collections.abc import Collection, Iterable
from enum import StrEnum
from pathlib import Path

import msgspec

from duebridge.audit import AcceptedEnvelope, ArrivedEnvelope, History
from tests.support.checkout import ROOT

SUFFIX = ".history.jsonl"


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


class Historian:
    """Writes one history. A line is handed to the system before `write` returns."""

    def __init__(self, home: Path, name: str) -> None:
        self._file = (home / f"{name}{SUFFIX}").open("ab", buffering=0)
        self._encoder = msgspec.json.Encoder()

    def write(self, events: Iterable[HistoryEvent]) -> None:
        self._file.write(self._encoder.encode_lines(list(events)))

    def note(
        self, subject: Subject, phase: Phase, id: str, *, due_at_ms: int = 0, answer: str = ""
    ) -> None:
        self.write([HistoryEvent(now_ms(), subject, phase, id, due_at_ms, answer)])

    def close(self) -> None:
        self._file.close()


def now_ms() -> int:
    return int(time.time() * 1000)


def read_histories(home: Path) -> list[HistoryEvent]:
    """Return the events of all processes; those of one id are in one thread's order."""
    decoder = msgspec.json.Decoder(HistoryEvent)
    return [
        event
        for path in sorted(home.glob(f"*{SUFFIX}"))
        for event in decoder.decode_lines(path.read_bytes())
    ]


def commit(report: Path, root: Path = ROOT) -> str:
    """Return the commit that is being proved, and whether the tree has changes beside it.

    The report is none: a proof that goes on after it wrote one is still of the same commit.
    """
    command = ["git", "rev-parse", "--short=12", "HEAD"]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, check=True)
    compare = ["git", "diff", "--quiet", "HEAD", "--", ".", f":(exclude){report}"]
    is_dirty = subprocess.run(compare, cwd=root).returncode != 0
    return done.stdout.strip() + ("-dirty" if is_dirty else "")


def machine() -> str:
    """Return the machine's size, and not its name."""
    pages = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return f"{os.cpu_count()} cores, {pages / 2**30:.0f} GiB"
