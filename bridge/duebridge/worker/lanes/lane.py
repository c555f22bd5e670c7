"""The worker's path to one broker: publisher, threads, window, and the health of its targets.

A lane is closed until its broker answered a ping, and again when the broker is unreachable. A
target that fails is held alone (`duebridge.worker.lanes.targets`).
"""

import threading
import time
from collections.abc import Callable, Container, Iterator, Sequence, Set
from concurrent.futures import Executor, Future
from queue import SimpleQueue
from typing import Any, NamedTuple

import structlog

from duebridge.config.models import WorkerSettings
from duebridge.ports.publisher import Delivery, Outcome, Publisher, Verdict
from duebridge.store.batching import CALL_BYTES
from duebridge.store.keys import Shard
from duebridge.store.wire.leases import LeasedEnvelope
from duebridge.telemetry import metrics
from duebridge.telemetry.outage import Outage
from duebridge.worker.lanes.side_threads import SideThreads
from duebridge.worker.lanes.targets import ProbeCursor, TargetHealth, TargetTable
from duebridge.worker.lanes.window import SMALL, Load, Window

MAX_THREADS = 16  # per lane; each has at most one batch in flight
PING_EVERY_S = 1.0
ASIDE_PER_S = 5000  # so that a worker that alone cannot reach a target does not empty the shard

log = structlog.get_logger()


class TargetGroup(NamedTuple):
    """The envelopes of a batch for one target; `is_probe`: they try a held one.

    `is_cut`: more of the claim had no room.
    """

    health: TargetHealth
    leased: Sequence[LeasedEnvelope]
    load: Load
    is_probe: bool = False
    is_cut: bool = False


class OutgoingBatch(NamedTuple):
    """The part of a batch that is published."""

    groups: Sequence[TargetGroup]
    is_letter: bool = False
    is_suspect: bool = False

    @property
    def load(self) -> Load:
        """The number and decoded size of its envelopes."""
        count = sum(group.load.envelopes for group in self.groups)
        return Load(count, sum(group.load.size_bytes for group in self.groups))

    def by_group(
        self, outcomes: Sequence[Outcome]
    ) -> Iterator[tuple[TargetGroup, Sequence[Outcome]]]:
        """Yield each group with the outcomes of its envelopes; none where nothing was published."""
        place = 0
        for group in self.groups:
            yield group, outcomes[place : place + group.load.envelopes]
            place += group.load.envelopes

    @property
    def is_side_batch(self) -> bool:
        """Whether it may only use a part of the lane's threads: probes and dead letters."""
        return self.is_letter or any(group.is_probe for group in self.groups)

    @property
    def tries_silent(self) -> bool:
        """Whether it tries a held target that did not answer the latest try."""
        return any(group.is_probe and group.health.is_silent for group in self.groups)


class Lane:
    """Bounds the outstanding envelopes of a broker; the bounds follow its confirms.

    The loops of a worker share it. `lock` is theirs too: what one decides by the bounds and the
    targets, and counts by `begin` or a `Reservation`, is one step.
    """

    def __init__(
        self,
        broker: str,
        publisher: Publisher,
        settings: WorkerSettings,
        threads: Executor,
        settlers: Executor | None = None,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self.broker = broker
        self.settings = settings
        self.confirms = 0
        self.claimants = 1  # loops that claim for it
        self.is_open = False
        self.letters = 0  # dead letters outstanding
        self._side = SideThreads(thread_count(settings), monotonic)
        self._confirmed_at = -1.0
        self.has_suspect = False  # a suspect is outstanding: it is published alone
        self.recovered: SimpleQueue[tuple[str, Shard]] = SimpleQueue()  # tags to resume, by shard
        self.lock = threading.RLock()
        self._publisher = publisher
        self._threads = threads
        self._settlers = settlers or threads
        self._monotonic = monotonic
        self._outage = Outage("lane_stopped", "lane_open", monotonic, broker=broker)
        self._fault = Outage("publisher_failed", "publisher_works", monotonic, broker=broker)
        self._next_ping_at: float | None = monotonic()
        self._is_pinging = False
        self._aside, self._aside_at = float(ASIDE_PER_S), monotonic()
        self.window = self._window(Load(settings.batch, CALL_BYTES), SMALL)
        self.targets = TargetTable(lambda: self._window(SMALL, Load(1, 1)), monotonic)

    def _window(self, start: Load, floor: Load) -> Window:
        settings = self.settings
        bound = Load(settings.in_flight, settings.in_flight_bytes)
        within_s = settings.publish_deadline / 2000
        return Window(bound, settings.batch, start, floor, within_s, self._monotonic)

    # ── publishing ──────────────────────────────────────────────────────────────────────────────

    def submit(self, run: Callable[..., None], *args: Any) -> "Future[None]":
        """Publish: run a call on one of the lane's threads."""
        return self._threads.submit(run, *args)

    def settle(self, run: Callable[..., None], *args: Any) -> "Future[None]":
        """Run a call that must not wait for a broker, on a thread that never publishes."""
        return self._settlers.submit(run, *args)

    def publish(self, batch: Sequence[Delivery]) -> Sequence[Outcome]:
        """Publish a batch; return one outcome per delivery. Closes the lane on an outage."""
        if not batch:
            return ()
        started_at = self._monotonic()
        try:
            outcomes = _checked(list(self._publisher.publish(batch)), len(batch))
            self._fault.end()
        except Exception as error:  # a connector bug: the fate of the batch is unknown
            self._fault.begin_fault(error)
            unknown = Outcome(
                Verdict.INDETERMINATE, error_class=type(error).__name__, error_message=str(error)
            )
            outcomes = [unknown] * len(batch)
        metrics.publish_seconds.labels(self.broker).observe(self._monotonic() - started_at)
        self._judge(outcomes, started_at)
        return outcomes

    def _judge(self, outcomes: Sequence[Outcome], started_at: float) -> None:
        verdicts = {outcome.verdict for outcome in outcomes}
        if Verdict.UNAVAILABLE in verdicts:
            gone = next(each for each in outcomes if each.verdict is Verdict.UNAVAILABLE)
            self._close(gone.error_message)
        elif Verdict.CONFIRMED in verdicts:
            self._confirmed_at = self._monotonic()
        elif verdicts == {Verdict.INDETERMINATE} and self._confirmed_at < started_at:
            with self.lock:  # nothing was confirmed to anyone meanwhile
                self.window.restart()
            self._next_ping_at = self._next_ping_at or self._monotonic()

    # ── the broker ──────────────────────────────────────────────────────────────────────────────

    def _close(self, error: str) -> None:
        self.is_open = False
        self._outage.begin(error)
        self._next_ping_at = self._monotonic() + PING_EVERY_S

    def ping(self) -> None:
        """Ping the broker in the background if that is due; the answer opens or closes the lane."""
        is_due = self._next_ping_at is not None and self._monotonic() >= self._next_ping_at
        if not is_due or self._is_pinging:
            return
        with self.lock:
            is_first, self._is_pinging = not self._is_pinging, True
        if is_first:
            self._settlers.submit(self._ping)

    def _ping(self) -> None:
        try:
            self._publisher.ping()
        except Exception as error:  # also what a client raises without descriptors or memory
            self._close(str(error) or type(error).__name__)
        else:
            self.is_open = True
            self._next_ping_at = None
            self._outage.end()
        finally:
            self._is_pinging = False

    @property
    def in_flight(self) -> int:
        """The number of outstanding envelopes."""
        return self.window.outstanding.envelopes

    @property
    def error(self) -> str:
        """The latest error of a closed lane, or that its broker was never reached."""
        return self._outage.error or "its broker was not reached yet"

    def sleep_s(self) -> float | None:
        """Return seconds until a ping or probe; None if the lane needs neither."""
        waits = [each.sleep_s() for each in self.targets.held() if not each.may_probe()]
        if self._next_ping_at is not None and not self._is_pinging:
            waits.append(max(0.0, self._next_ping_at - self._monotonic()))
        return min(waits, default=None)

    # ── the bounds ──────────────────────────────────────────────────────────────────────────────

    def room(self) -> Load:
        """Return the room in which a loop may claim; none while the lane is closed."""
        with self.lock:
            return self.share_of(self.window) if self.is_open else Load()

    def share_of(self, window: Window) -> Load:
        """Return a loop's share of a window. The caller locks."""
        return window.room(self.claimants)

    def letter_room(self, *, serves_live: bool) -> Load:
        """Return the room for dead letters: half a window at most beside live envelopes.

        Those that arrive later must not wait for letters that nobody confirms.
        """
        room = self.room()
        if not serves_live:
            return room
        half = max(1, self.window.size.envelopes // 2) - self.letters
        return room._replace(envelopes=max(0, min(room.envelopes, half)))

    def may_start_side_batch(self) -> bool:
        """Whether another batch of probes or dead letters may go out."""
        return self._side.free > 0

    def may_probe(self, health: TargetHealth) -> bool:
        """Whether an envelope may try a held target now. The caller locks."""
        is_free = self._side.is_free_for_silent if health.is_silent else self._side.free > 0
        return is_free and health.may_probe()

    def probes_due(self, shard: Shard) -> list[TargetHealth]:
        """Return the held targets that a shard may try now, those first that have waited longest.

        A thread that has just become free is for whoever has waited longest in any shard.
        """
        with self.lock:
            free, for_silent = self._side.free, self._side.is_free_for_silent
            due = self.targets.due() if free else []
            may_go = [each for each in due if for_silent or not each.is_silent]
            first = may_go[:free] if self._side.is_fresh else may_go
            return [each for each in first if shard in each.aside]

    def begin(self, outgoing: OutgoingBatch) -> None:
        """Count a batch as outstanding."""
        with self.lock:
            self._count(outgoing, 1)
            if outgoing.is_side_batch:
                self._side.take(outgoing, is_silent=outgoing.tries_silent)
            self.window.take(outgoing.load)
            for group in outgoing.groups:
                group.health.window.take(group.load, is_cut=group.is_cut)
                if group.is_probe:
                    group.health.probe()
                    self.targets.note_mode(group.health)

    def end(self, outgoing: OutgoingBatch, outcomes: Sequence[Outcome] = ()) -> None:
        """Count a batch as published; the windows follow what was confirmed."""
        with self.lock:
            self._count(outgoing, -1)
            self._side.give_back(outgoing)
            for group, some in outgoing.by_group(outcomes):
                confirmed = _confirmed(some, group.load)
                group.health.window.give_back(group.load, confirmed)
                self.window.give_back(group.load, confirmed)
                self.confirms += confirmed.envelopes
                if group.is_probe:
                    group.health.give_up_probe()

    def end_suspect(self, outgoing: OutgoingBatch) -> None:
        """Admit the next suspect once a batch of one is settled."""
        if outgoing.is_suspect:
            with self.lock:
                self.has_suspect = False

    def _count(self, outgoing: OutgoingBatch, sign: int) -> None:
        self.has_suspect |= outgoing.is_suspect
        if outgoing.is_letter:
            self.letters += sign * outgoing.load.envelopes

    def judge(self, health: TargetHealth, outcomes: Sequence[Outcome], started_at: float) -> None:
        """Note the outcomes of a batch to one target; see `TargetHealth.judge`."""
        with self.lock:
            if health.judge(outcomes, started_at):
                for shard in health.aside:
                    self.recovered.put((health.tag, shard))
                health.aside.clear()
            self.targets.note_mode(health)

    def note_aside(self, health: TargetHealth, shard: Shard) -> None:
        """Note that a shard has envelopes set aside for a target, which may be up again by now."""
        with self.lock:
            if health.mode == "up":
                self.recovered.put((health.tag, shard))
            else:
                known = health.aside.get(shard, ProbeCursor())
                health.aside[shard] = ProbeCursor(known.cursor)

    def note_shard(self, health: TargetHealth, shard: Shard) -> None:
        """Note that a shard may have envelopes set aside for a target, unless that is known."""
        with self.lock:
            if shard not in health.aside:
                self.note_aside(health, shard)

    def end_search(self, health: TargetHealth, shard: Shard, search: ProbeCursor) -> None:
        """Note that a search found nothing, unless envelopes were set aside meanwhile.

        One that began halfway goes on with the part that it left out.
        """
        with self.lock:
            if health.aside.get(shard) is not search:
                return
            if search.is_whole:
                del health.aside[shard]
            else:
                health.aside[shard] = ProbeCursor()

    def end_idle_holds(self, served: Set[Shard], awaiting: Container[object]) -> None:
        """End the holds of targets for which nothing waits: no envelope could end them.

        None is set aside for them in a shard that is served, and no route is `awaiting` them.
        """
        with self.lock:
            for health in self.targets.held():
                health.keep_shards(served)
            self.targets.forget_idle(awaiting)

    def aside_room(self) -> int:
        """Return the number of envelopes that may be set aside now."""
        with self.lock:
            now = self._monotonic()
            refilled = self._aside + (now - self._aside_at) * ASIDE_PER_S
            self._aside, self._aside_at = min(float(ASIDE_PER_S), refilled), now
            return max(0, int(self._aside))

    def count_aside(self, count: int) -> None:
        """Count envelopes as set aside."""
        with self.lock:
            self._aside -= count

    def close(self) -> None:
        """Close the publisher; unanswered deliveries become indeterminate."""
        try:
            self._publisher.close()
        except Exception:  # a connector bug: what it delivered is settled
            log.exception("publisher_not_closed", broker=self.broker)

    def end_threads(self) -> None:
        """End the lane's threads once they have nothing left to do; does not wait."""
        self._threads.shutdown(wait=False)
        self._settlers.shutdown(wait=False)


def _checked(outcomes: Sequence[Outcome], count: int) -> Sequence[Outcome]:
    if len(outcomes) != count:
        got = f"expected one outcome per delivery, {count}; got {len(outcomes)}"
        raise ValueError(f"publish: {got}")
    return outcomes


def thread_count(settings: WorkerSettings) -> int:
    """Return the number of batches that a lane publishes at once."""
    return max(1, min(MAX_THREADS, settings.in_flight // settings.batch))


def _confirmed(outcomes: Sequence[Outcome], load: Load) -> Load:
    """Return the confirmed part of a load; bytes in proportion."""
    count = sum(outcome.verdict is Verdict.CONFIRMED for outcome in outcomes)
    return Load(count, load.size_bytes * count // max(1, load.envelopes))
