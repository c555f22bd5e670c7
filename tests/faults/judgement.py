"""Histories on disk, what they say of each envelope, and the verdict on it."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TypeAlias

import msgspec

from duebridge.audit import Bounds, audit
from duebridge.ports.publisher import Reason
from duebridge.store.journal import JournalEntry
from tests.faults.scenario import Bound, Scenario
from tests.support.model.histories import HistoryEvent, history_of, whole_histories
from tests.support.servers import IS_BESIDE_OTHERS

# Beside other tests on the same cores; `make proof` judges alone.
SLOWER = 8 if IS_BESIDE_OTHERS else 1
WELL_S = 2.0 * SLOWER  # how late may be what is well, or is so again
RECOVERS_WITHIN_S = 5.0 * SLOWER  # a broker's target
LATE_MS = 2**60  # where there was none


class RunAccount:
    """All that came of a run: when each was due and arrived or was buried, copies included.

    The envelopes of a test's own are asked for by the word that their ids begin with.
    """

    def __init__(self, events: Sequence[HistoryEvent], journal: Iterable[JournalEntry]) -> None:
        self.history = history_of(events)
        self.verdict = audit(self.history)
        self.due_ms = {each.id: each.due_at_ms for each in self.history.accepted}
        letters = [each.id for each in self.history.dead]
        self.letter_copies = len(letters) - len(set(letters))  # beyond the first of each
        self._buried_ms: dict[str, int] = {}
        self.exhausted: set[str] = set()
        self.confirmed_ms: list[int] = []  # when the store had word of confirms
        for entry in journal:
            if entry.kind == "delivered":
                self.confirmed_ms.append(entry.at_ms)
            if entry.kind == "dead":
                self._buried_ms |= {each: entry.at_ms for each, _ in entry.items}
                self.exhausted |= {
                    each for each, note in entry.items if note.reason == Reason.ATTEMPTS_EXHAUSTED
                }

    def arrived_ms(self, word: str, *, dead: bool = False) -> dict[str, int]:
        """Return when each came first, to its target or as a dead letter."""
        events = self.history.dead if dead else self.history.delivered
        latest_first = sorted(events, key=lambda each: -each.at_ms)
        return {each.id: each.at_ms for each in latest_first if each.id.startswith(word)}

    def late(
        self, word: str, limit_s: float | None = None, since_ms: int = 0, *, dead: bool = False
    ) -> Bound:
        """Bound how long after due, or after an instant if that is later, the last one came."""
        found = self.arrived_ms(word, dead=dead)
        late_ms = (at - max(self.due_ms.get(each, at), since_ms) for each, at in found.items())
        what = f"{word}: latest{' as dead letter' if dead else ''} after "
        what += "all was well, s" if since_ms else "due, s"
        return Bound(what, round(max(late_ms, default=0) / 1000, 2), limit_s)

    def well(self, word: str, since_ms: int = 0) -> list[Bound]:
        """Bound what no fault of others may delay or stop."""
        return [self.late(word, WELL_S, since_ms), self.missing(word)]

    def recovered(self, began_ms: int, well_ms: int) -> Bound:
        """Bound when the store had word of a confirm by a broker whose start began, since its end.

        What waits by then takes as long as the machine is busy: that is no part of it.
        """
        after_ms = min((at for at in self.confirmed_ms if at >= began_ms), default=LATE_MS)
        what = "first publish after the broker answered, s"
        return Bound(what, max(0, after_ms - well_ms) / 1000, RECOVERS_WITHIN_S)

    def missing(self, word: str, *, dead: bool = False, called: str = "") -> Bound:
        """Bound how many came to no target, or are no dead letter, although they should."""
        wanted = {each for each in self.due_ms if each.startswith(word)}
        wanted -= self.history.cancelled | self.history.excused
        wanted -= self.arrived_ms(word).keys()
        dead_ones = self.arrived_ms(word, dead=True).keys() if dead else set()
        what = f"{called or word}: not {'sent as dead letters' if dead else 'delivered'}"
        return Bound(what, len(wanted - dead_ones), 0)

    def buried(self, word: str, from_s: float, to_s: float) -> list[Bound]:
        """Bound how many were not buried, and when after their due the others were."""
        wanted = [each for each in self.due_ms if each.startswith(word)]
        after_s = [
            (self._buried_ms[each] - self.due_ms[each]) / 1000
            for each in wanted
            if each in self._buried_ms
        ]
        return [
            Bound(f"{word}: not buried", len(wanted) - len(after_s), 0),
            Bound(f"{word}: buried before {from_s:g} s", sum(s < from_s for s in after_s), 0),
            Bound(f"{word}: buried after, s, at most", max(after_s, default=0), to_s),
        ]


Look: TypeAlias = Callable[[RunAccount], Sequence[Bound]]  # once everything that came was seen


def judge(seen: RunAccount, scenario: Scenario, may_repeat: int) -> dict[str, list[str]]:
    """Return the ids by what is wrong with them; faults may have made so many copies."""
    bounds = Bounds(
        duplicates=may_repeat * scenario.may_repeat, dead=seen.verdict.accepted * scenario.may_bury
    )
    violations = seen.verdict.violations(bounds)
    if seen.letter_copies > bounds.duplicates:
        violations["letters_twice"] = [f"{seen.letter_copies} copies"]
    if seen.exhausted and not scenario.may_count:
        violations["exhausted"] = sorted(seen.exhausted)
    return violations


def tell(home: Path, events: list[HistoryEvent], violations: Mapping[str, list[str]]) -> None:
    """Write down the whole history of every id with which something is wrong."""
    ids = {each for found in violations.values() for each in found}
    lines = [
        msgspec.json.encode(event).decode()
        for story in whole_histories(events, ids).values()
        for event in sorted(story, key=lambda event: event.at_ms)
    ]
    (home / "violations.jsonl").write_text("\n".join(lines) + "\n")
