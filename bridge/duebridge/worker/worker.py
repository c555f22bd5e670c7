"""Moves envelopes from due to delivered: promote, claim, publish, settle.

    pending ──promote──▶ ready ──claim──▶ unack ──publish──▶ the broker confirms ──ack──▶ gone
       ▲                   ▲                ├─ retry, set aside ─▶ retry ──promote, resume──▶ ready
       │                   └── reclaim ─────┤ (the lease ran out)
       └── replay ── dead ◀── bury ─────────┘ ; a shunt takes dead to the dead-letter target

The loop polls the store and claims; the threads of the lanes publish and settle batches. A dead
letter goes the way of any envelope, through the lane of its dead-letter target. The store holds the
only durable state.
"""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from queue import SimpleQueue
from threading import Event

import structlog

from duebridge.errors import Indeterminate, StoreError, StoreUnavailable
from duebridge.ports.publisher import Reason
from duebridge.store.batching import CALL_ROWS, PROMOTE_ROWS
from duebridge.store.delay_store import NO_CURSOR
from duebridge.store.poll import Poll
from duebridge.telemetry import metrics
from duebridge.telemetry.tracing import Tracing
from duebridge.worker.claims import Claims
from duebridge.worker.deliverer import Deliverer
from duebridge.worker.dispatcher import Dispatcher
from duebridge.worker.lanes.lane import Lane
from duebridge.worker.lanes.outage import Outage
from duebridge.worker.settlement import report_buried
from duebridge.worker.shard import ShardView

RESUME_ROWS = 500
FAILED_PAUSE_S = 1.0

log = structlog.get_logger()


class Worker:
    """The loop of a worker process; claims at most one batch per shard and turn."""

    def __init__(
        self,
        lanes: Mapping[str, Lane],
        views: Sequence[ShardView],
        monotonic: Callable[[], float] = time.monotonic,
        tracing: Tracing | None = None,
    ) -> None:
        self.lanes = dict(lanes)
        self.views = list(views)
        self._wanted = self.views
        self._by_shard = {view.store.shard: view for view in self.views}
        self._monotonic = monotonic
        self._woken = Event()
        self._stopping = Event()
        self._polls: SimpleQueue[tuple[ShardView, Poll | None]] = SimpleQueue()
        self._deliverer = Deliverer(self._note_poll, monotonic, tracing)
        self._dispatcher = Dispatcher(self._deliverer, self._woken.set, monotonic)
        self._claims = Claims(self.lanes, self._dispatcher, lambda: self.views, monotonic)
        self._store_outage = Outage("store_unavailable", "store_back", monotonic)
        self._store_fault = Outage("store_failed", "store_works", monotonic)
        self._first = 0
        self._heartbeat_at = monotonic()

    # ── the flow ────────────────────────────────────────────────────────────────────────────────

    def run_once(self) -> int:
        """Give every shard one turn; return the number of envelopes moved."""
        self._heartbeat()
        if self.views is not self._wanted:
            self.views = self._wanted
            self._by_shard = {view.store.shard: view for view in self.views}
        self._merge_polls()
        for lane in self.lanes.values():
            lane.ping()
            self._note_recovered(lane)
        for view in self._deliverer.acks.overdue():
            self._dispatcher.send_acks(self._lane(view), view)
        moved = sum(self._turn(view) for view in self._in_turn())
        is_away = self._store_outage.is_on or self._store_fault.is_on
        if is_away and all(view.is_heard for view in self.views):
            self._store_outage.end()
            self._store_fault.end()
        return moved

    def _note_recovered(self, lane: Lane) -> None:
        for tag, shard in lane.take_recovered():
            if view := self._by_shard.get(shard):
                view.resuming[tag] = NO_CURSOR

    def _turn(self, view: ShardView) -> int:
        claims = self._claims
        steps = (
            self._reclaim,
            self._resume,
            self._promote,
            claims.claim,
            claims.probe,
            claims.shunt,
        )
        self._heartbeat()
        if view.is_pausing or self._stopping.is_set():
            return 0
        try:
            view.refresh()
            moved = 0
            for step in (*steps, self._tidy):
                self._heartbeat()  # each call may take the timeout of a store that is away
                moved += step(view)
        except Indeterminate as error:
            self._store_outage.begin(str(error))
            view.mark_unconfirmed()
            return 0
        except StoreUnavailable as error:
            self._store_outage.begin(str(error))
        except StoreError as error:
            self._store_fault.begin(f"route {view.route.name}: {error}")
        else:
            return moved
        view.mark_unreachable()
        return 0

    def _reclaim(self, view: ShardView) -> int:
        """Move envelopes with expired leases from unack to ready."""
        if not view.is_due(view.poll.first_unack_ms):
            return 0
        poll, count, poisoned = view.store.reclaim(
            CALL_ROWS, poison=view.route.poison, counted=view.counts_expiries
        )
        view.update(poll)
        metrics.count_reclaimed(view.route.name, count, poisoned)
        log.warning("reclaimed", route=view.route.name, count=count)
        report_buried(view.route.name, Reason.POISON, poisoned)
        return count

    def _resume(self, view: ShardView) -> int:
        """Make ready what was set aside for targets that are well again, a page a turn."""
        moved = 0
        for tag, cursor in list(view.resuming.items()) if view.can_resume else ():
            reply = view.store.resume(tag, RESUME_ROWS, cursor)
            view.update(reply.poll)
            moved += reply.moved
            if reply.cursor is None:
                del view.resuming[tag]
            else:
                view.resuming[tag] = reply.cursor
        return moved

    def _promote(self, view: ShardView) -> int:
        """Move due envelopes from pending and retry to ready, unless the claim will do so."""
        if not view.promotable or self._claims.can_promote(view):
            return 0
        poll, count = view.store.promote(PROMOTE_ROWS)
        view.update(poll)
        view.gather(count)
        return count

    def _tidy(self, view: ShardView) -> int:
        """Forget expired memory; make due the dead envelopes that waited for another target."""
        moved = 0
        if view.must_readdress and view.dead_letter is not None:
            moved = view.store.readdress(str(view.dead_letter), RESUME_ROWS)
            view.must_readdress = moved > 0
            if moved:
                view.must_poll()
        if view.is_due(view.poll.first_forget_ms):
            poll, _ = view.store.forget()
            view.update(poll)
        return moved

    # ── steps ───────────────────────────────────────────────────────────────────────────────────

    def _lane(self, view: ShardView) -> Lane:
        return self.lanes[view.target.broker]

    def _note_poll(self, view: ShardView, poll: Poll | None) -> None:
        self._polls.put((view, poll))

    def _merge_polls(self) -> None:
        while not self._polls.empty():
            view, poll = self._polls.get()
            view.merge_poll(poll)

    def _in_turn(self) -> Iterator[ShardView]:
        """Yield every shard once, round-robin by starting position, so that none is starved."""
        self._first = (self._first + 1) % max(1, len(self.views))
        yield from self.views[self._first :]
        yield from self.views[: self._first]

    # ── the loop ────────────────────────────────────────────────────────────────────────────────

    def run(self, stop: Event) -> None:
        """Run until `stop` is set; sleep between turns until the next known work or a hint.

        Whatever a turn raises is logged once, and the loop goes on after a pause.
        """
        failure = Outage("loop_failed", "loop_recovered", self._monotonic)
        self._stopping = stop
        while not stop.is_set():
            try:
                if not self.run_once():
                    self._woken.wait(self.sleep_s())
                failure.end()
            except Exception as error:
                if not failure.is_on:
                    log.exception("loop_failed")
                failure.begin(f"{type(error).__name__}: {error}")
                stop.wait(FAILED_PAUSE_S)
            self._woken.clear()

    def sleep_s(self) -> float:
        """Return seconds until the next known work; at most a second."""
        waits = [view.sleep_s() for view in self.views]
        waits += [0.0 for view in self.views if view.can_resume]
        lanes = (lane.sleep_s() for lane in self.lanes.values())
        waits += [wait for wait in (*lanes, self._deliverer.acks.sleep_s()) if wait is not None]
        return min(waits, default=1.0)

    def wake(self, view: ShardView | None = None) -> None:
        """Start the next turn now; given a shard, poll it first. Thread-safe."""
        if view is not None:
            self._note_poll(view, None)
        self._woken.set()

    def swap(self, views: Sequence[ShardView]) -> None:
        """Replace the served shards from the next turn on. Thread-safe.

        Batches in flight are settled with the route settings that they were claimed with.
        """
        self._wanted = list(views)
        self.wake()

    def _heartbeat(self) -> None:
        self._heartbeat_at = self._monotonic()

    def idle_s(self) -> float:
        """Return seconds since the loop's last step; bounded by 1 s plus one blocking call."""
        return self._monotonic() - self._heartbeat_at

    def drain(self, seconds: float) -> None:
        """Release batches not yet published; wait up to `seconds` for the others to settle."""
        self._dispatcher.drain(seconds, self._lane)
