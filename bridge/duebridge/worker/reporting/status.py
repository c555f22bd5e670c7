"""Writes the state of this process to the store: lanes, windows, held targets, intakes.

Runs in a thread of its own, so that a slow store delays no delivery.
"""

import os
import secrets
import socket
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from importlib.metadata import version
from operator import attrgetter

from duebridge.errors import StoreUnavailable, described
from duebridge.runtime import PeriodicTask
from duebridge.store.workers import (
    MOST_ERROR,
    HeldTarget,
    IntakeRecord,
    LaneRecord,
    WorkerRecord,
    Workers,
)
from duebridge.telemetry.outage import Outage
from duebridge.worker.lanes.lane import Lane
from duebridge.worker.lanes.targets import TargetHealth
from duebridge.worker.shard import ShardView
from duebridge.worker.worker import Worker

WRITE_EVERY_S = 5.0
FIRST_TRY_S = 0.2  # until the store's clock is known
TROUBLED_S = 1.0  # while a broker is not reached
CLOSE_WITHIN_S = 0.2
MOST_HELD = 100  # that are shown: those held longest


def held_targets(lane: Lane, views: Sequence[ShardView], now_ms: int) -> list[HeldTarget]:
    """Return the targets that a lane holds, and since when by the clock of `now_ms`."""
    with lane.lock:
        return list(_held(lane, views, now_ms))


def held_longest(held: Iterable[HeldTarget]) -> list[HeldTarget]:
    """Return the targets that are shown, those held longest first."""
    return sorted(held, key=attrgetter("since_ms"))[:MOST_HELD]


def _held(lane: Lane, views: Sequence[ShardView], now_ms: int) -> Iterator[HeldTarget]:
    to, letters_to = _routes_by_target(views)
    for health in lane.targets.held():
        status = health.status()
        if status is None:
            continue
        target_of = to.get(health.target, set())
        yield HeldTarget(
            broker=lane.broker,
            target=status.target,
            error=status.error[:MOST_ERROR],
            since_ms=now_ms - round(1000 * status.held_for_s),
            is_at_fault=health.is_at_fault,
            outstanding=status.outstanding,
            routes=tuple(sorted(target_of | _waiting(health))),
            letters_of=tuple(sorted(letters_to.get(health.target, ()))),
            target_of=tuple(sorted(target_of)),
            tag=health.tag,
        )


def _waiting(health: TargetHealth) -> set[str]:
    return {shard.route for shard in list(health.aside)}


def _routes_by_target(views: Sequence[ShardView]) -> tuple[dict[object, set[str]], ...]:
    to: dict[object, set[str]] = {}
    letters_to: dict[object, set[str]] = {}
    for view in views:
        to.setdefault(view.target, set()).add(view.route.name)
        if view.dead_letter is not None:
            letters_to.setdefault(view.dead_letter, set()).add(view.route.name)
    return to, letters_to


def _lane_record(lane: Lane) -> LaneRecord:
    return LaneRecord(
        broker=lane.broker,
        is_open=lane.is_open,
        error="" if lane.is_open else lane.error[:MOST_ERROR],
        window=lane.window.size.envelopes,
        outstanding=lane.in_flight,
    )


def store_now_ms(views: Sequence[ShardView]) -> int | None:
    """Return the store's clock as the shards know it; None before the first poll."""
    return max((view.now_ms() for view in views if view.poll.now_ms), default=None)


class StatusWriter(PeriodicTask):
    """Keeps the record of one worker process in the store while it runs.

    `intakes` returns the state of those that the process runs.
    """

    def __init__(
        self,
        worker: Worker,
        workers: Workers,
        monotonic: Callable[[], float] = time.monotonic,
        intakes: Callable[[], Sequence[IntakeRecord]] = tuple,
    ) -> None:
        super().__init__("status")
        self.host = socket.gethostname()
        self.id = f"{self.host}-{os.getpid()}-{secrets.token_hex(3)}"
        self._worker = worker
        self._workers = workers
        self._intakes = intakes
        self._started_at_ms = 0
        self._refusal = Outage("status_not_written", "status_written", monotonic)

    def close(self) -> None:
        """Stop, and remove the record, unless the store takes longer than `CLOSE_WITHIN_S`."""
        super().close()
        self._thread.join(CLOSE_WITHIN_S)

    def step(self) -> float:
        """Write the record; sooner again while something is wrong."""
        return self._pause_s() if self.run_once() else FIRST_TRY_S

    def run_once(self) -> bool:
        """Write the record; False if there is none yet, since the store's clock is not known."""
        views = self._worker.views
        now_ms = store_now_ms(views)
        if views and now_ms is None:
            return False
        self._attempt(lambda: self._write(now_ms))
        return True

    def _write(self, now_ms: int | None) -> None:
        """Write the record; a process that runs intakes alone asks the store for its clock."""
        self._workers.write(self.record(self._workers.now_ms() if now_ms is None else now_ms))

    def record(self, now_ms: int) -> WorkerRecord:
        """Return the state of this process."""
        self._started_at_ms = self._started_at_ms or now_ms
        views, lanes = self._worker.views, self._worker.lanes.values()
        held = [each for lane in lanes for each in held_targets(lane, views, now_ms)]
        return WorkerRecord(
            id=self.id,
            host=self.host,
            pid=os.getpid(),
            version=version("duebridge"),
            started_at_ms=self._started_at_ms,
            at_ms=now_ms,
            lanes=tuple(map(_lane_record, lanes)),
            held=tuple(held_longest(held)),
            routes=tuple(dict.fromkeys(view.route.name for view in views)),
            intakes=tuple(self._intakes()),
        )

    def _run(self) -> None:
        super()._run()
        self._attempt(lambda: self._workers.remove(self.id))

    def _pause_s(self) -> float:
        is_well = all(lane.is_open for lane in self._worker.lanes.values())
        is_well = is_well and all(each.is_up for each in self._intakes())
        return WRITE_EVERY_S if is_well else TROUBLED_S

    def _attempt(self, call: Callable[[], None]) -> None:
        """Call the store. While it is away, the worker's loop says so."""
        try:
            call()
            self._refusal.end()
        except StoreUnavailable:
            pass
        except Exception as error:  # most often its user has no right to write the record
            self._refusal.begin(described(error))
