"""The health of each target of a lane: up, held after a failure, or probing.

A batch to a target that brought failures of the target and no confirm holds it; beside confirms a
failure is its envelope's alone. So is that of a part of the target which the publisher knows to be
away, such as a partition without a leader: it ends a hold. A held target is tried with one
envelope a second. A target that confirms is up. One for which nothing waits is forgotten: its next
failure holds it again.
"""

import time
from base64 import b32encode
from collections.abc import Callable, Container, Iterable, Sequence, Set
from hashlib import blake2b
from typing import Literal, NamedTuple, TypeAlias

from duebridge.envelope import Target
from duebridge.errors import on_one_line
from duebridge.ports.publisher import Outcome, Verdict
from duebridge.store.delay_store import NO_CURSOR
from duebridge.store.keys import Shard
from duebridge.telemetry.outage import Outage
from duebridge.worker.lanes.window import Window

PROBE_EVERY_S = 1.0
IDLE_S = 10.0  # after its latest try: what that set aside is noted by then
MOST_TARGETS = 10_000

Mode: TypeAlias = Literal["up", "held", "probing"]
_FAILURES = frozenset({Verdict.TARGET_FAILED, Verdict.TARGET_UNAVAILABLE})

_ANSWERS = frozenset({Verdict.FAILED, Verdict.DEFERRED, Verdict.PART_UNAVAILABLE})


class TargetStatus(NamedTuple):
    """The status of a held target, for people."""

    target: str
    error: str
    held_for_s: float
    outstanding: int


class ProbeCursor:
    """The progress of a search in a shard for an envelope that probes a target.

    Only the shard's loop moves it. `is_whole`: it began with the first of the shard.
    """

    def __init__(self, cursor: tuple[str, str] = NO_CURSOR) -> None:
        self.cursor = cursor
        self.is_whole = cursor == NO_CURSOR


class TargetHealth:
    """One target. `is_at_fault`: it is missing or forbids, so that the clock of `hold` runs.

    `is_silent`: its latest try was not answered, so that the next may take the whole deadline too.
    """

    def __init__(self, target: Target, window: Window, monotonic: Callable[[], float]) -> None:
        self.target = target
        self.tag = b32encode(
            blake2b(repr(target.as_dict()).encode(), digest_size=5).digest()
        ).decode()
        self.window = window
        self.mode: Mode = "up"
        self.is_at_fault = False
        self.is_silent = False
        self.aside: dict[Shard, ProbeCursor] = {}  # the shards with envelopes set aside for it
        self._monotonic = monotonic
        self._outage = Outage("target_held", "target_up", monotonic, target=str(target))
        self._answered: dict[int, float] = {}
        self._next_probe_at = 0.0
        self._searched_until = 0.0

    @property
    def is_quiet(self) -> bool:
        """Whether it may be forgotten: nothing is out to it."""
        return not self.window.outstanding.envelopes

    @property
    def is_idle(self) -> bool:
        """Whether it is held though nothing waits for it, nor is under way to it."""
        waits = bool(self.aside) or self.mode != "held" or not self.is_quiet
        return not waits and self._monotonic() >= self._next_probe_at + IDLE_S

    @property
    def probe_at(self) -> float:
        """The instant from which it may be tried again."""
        return self._next_probe_at

    def may_probe(self) -> bool:
        """Whether one envelope may try the held target now."""
        next_at = max(self._next_probe_at, self._searched_until)
        return self.mode == "held" and self._monotonic() >= next_at

    def begin_search(self) -> bool:
        """Return whether the caller may search for a probe now; no other loop does meanwhile.

        A search that its store holds up has its turn for no longer than the pause between probes.
        """
        may_probe = self.may_probe()
        if may_probe:
            self._searched_until = self._monotonic() + PROBE_EVERY_S
        return may_probe

    def end_search(self) -> None:
        """End the caller's turn to search; another loop may begin one."""
        self._searched_until = 0.0

    def probe(self) -> None:
        """Note that an envelope tries the held target."""
        self.mode = "probing"

    def skip_probe(self) -> None:
        """Wait for the next probe, since no envelope tried the target."""
        self._next_probe_at = self._monotonic() + PROBE_EVERY_S

    def sleep_s(self) -> float:
        """Return seconds until the next probe."""
        return max(0.0, max(self._next_probe_at, self._searched_until) - self._monotonic())

    def answered_since(self, instant: float, part: int) -> bool:
        """Return whether that part of the target confirmed a batch begun at `instant` or later."""
        return self._answered.get(part, -1.0) >= instant

    def judge(self, outcomes: Sequence[Outcome], started_at: float) -> bool:
        """Note the outcomes of one batch; return whether the target is well again."""
        confirmed = {each.part for each in outcomes if each.verdict is Verdict.CONFIRMED}
        for part in confirmed:
            self._answered[part] = max(self._answered.get(part, 0.0), started_at)
        failed = [each for each in outcomes if each.verdict in _FAILURES]
        silent = [each for each in outcomes if each.verdict is Verdict.INDETERMINATE]
        if confirmed or (not failed and not silent and _has_answer(outcomes)):
            if any(each.verdict is Verdict.PART_UNAVAILABLE for each in outcomes):
                self.window.reopen()
            return self._end_hold()
        if failed or silent:
            self._hold(failed or silent, is_silent=not failed)
        return False

    def give_up_probe(self) -> None:
        """End a probe without an answer; the target stays held."""
        if self.mode == "probing":
            self.mode = "held"
            self.skip_probe()

    def _hold(self, failed: Sequence[Outcome], *, is_silent: bool) -> None:
        was_up, self.mode = self.mode == "up", "held"
        self.is_at_fault = any(each.verdict is Verdict.TARGET_FAILED for each in failed)
        self.is_silent = is_silent
        self._next_probe_at = self._monotonic() + PROBE_EVERY_S
        self._outage.begin(on_one_line(failed[0].error))
        if is_silent and was_up:  # an unanswered probe says nothing of a rate
            self.window.restart()

    def _end_hold(self) -> bool:
        was_held, self.mode = self.mode != "up", "up"
        self.is_at_fault = self.is_silent = False
        self._outage.end()
        return was_held

    def keep_shards(self, served: Set[Shard]) -> None:
        """Forget what waits in shards that are served no more."""
        for shard in self.aside.keys() - served:
            del self.aside[shard]

    def end_idle_hold(self) -> None:
        """End the hold of an idle target, which nobody could tell to be well again."""
        self.mode, self.is_at_fault = "up", False
        self._outage.end("target_forgotten")

    def status(self) -> TargetStatus | None:
        """Return the status of a held target; None for a healthy one."""
        if not self._outage.is_on:
            return None
        outstanding = self.window.outstanding.envelopes
        return TargetStatus(
            str(self.target), self._outage.error, self._outage.lasted_s, outstanding
        )


def _has_answer(outcomes: Iterable[Outcome]) -> bool:
    """Whether the broker itself answered: a refusal may also come from the client library."""
    return any(each.verdict in _ANSWERS for each in outcomes)


class TargetTable:
    """The `MOST_TARGETS` targets that a lane knows, and those with deliveries out. The lane locks.

    Idle healthy ones are forgotten first.
    """

    def __init__(
        self,
        new_window: Callable[[], Window],
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._new_window = new_window
        self._monotonic = monotonic
        self._known: dict[Target, TargetHealth] = {}
        self._held: dict[Target, TargetHealth] = {}

    def of(self, target: Target) -> TargetHealth:
        """Return the health of a target, up if it is new."""
        found = self._known.get(target)
        if found is None:
            self._make_room()
            found = self._known[target] = TargetHealth(target, self._new_window(), self._monotonic)
        return found

    def held(self) -> list[TargetHealth]:
        """Return the targets that are not up."""
        return list(self._held.values())

    def held_by_tag(self) -> dict[str, TargetHealth]:
        """Return the targets that are not up by the tag of what is set aside for them."""
        return {each.tag: each for each in self.held()}

    def due(self) -> list[TargetHealth]:
        """Return the held targets that may be tried now, those first that have waited longest."""
        due = [each for each in self._held.values() if each.aside and each.may_probe()]
        return sorted(due, key=lambda each: each.probe_at)

    def note_mode(self, health: TargetHealth) -> None:
        """Keep track of the targets that are not up; of one that was forgotten, nothing."""
        if self._known.get(health.target) is not health:
            return
        if health.mode == "up":
            self._held.pop(health.target, None)
        else:
            self._held[health.target] = health

    def forget_idle(self, awaiting: Container[object]) -> None:
        """End the holds of idle targets, and forget these, but those that a route is `awaiting`."""
        for health in self.held():
            if health.is_idle and health.target not in awaiting:
                health.end_idle_hold()
                self._known.pop(health.target, None)
                self._held.pop(health.target, None)

    def _make_room(self) -> None:
        """Forget a tenth: first idle targets that are up, then held ones, then those with a wait.

        No probe tries a forgotten target: each envelope that waits for it goes when its wait ends.
        """
        if len(self._known) < MOST_TARGETS:
            return
        quiet = [each for each in self._known.values() if each.is_quiet]
        quiet.sort(key=lambda each: (bool(each.aside), each.target in self._held))
        for each in quiet[: max(1, MOST_TARGETS // 10)]:
            del self._known[each.target]
            self._held.pop(each.target, None)
