"""Serves the shards of one node of the store in turn: promote, claim, publish, settle.

    pending ──promote──▶ ready ──claim──▶ unack ──publish──▶ the broker confirms ──ack──▶ gone
       ▲                   ▲                ├─ retry, set aside ─▶ retry ──promote, resume──▶ ready
       │                   └── reclaim ─────┤ (the lease ran out)
       └── replay ── dead ◀── bury ─────────┘ ; a shunt takes dead to the dead-letter target

The loop polls the store and claims; the threads of the lanes publish batches. A dead letter goes
the way of any envelope, through the lane of its dead-letter target. The store holds the only
durable state.
"""

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Executor
from typing import NamedTuple

import structlog

from duebridge.errors import Indeterminate, StoreError, StoreUnavailable
from duebridge.ports.publisher import Reason
from duebridge.store.batching import CALL_ROWS, PROMOTE_ROWS
from duebridge.store.server.errors import WritesRefused
from duebridge.telemetry import metrics
from duebridge.telemetry.outage import Outage
from duebridge.worker.claims import Claims
from duebridge.worker.dispatcher import Dispatcher
from duebridge.worker.lanes.daemon_executor import DaemonExecutor
from duebridge.worker.lanes.lane import Lane
from duebridge.worker.settlement import Acks, report_buried
from duebridge.worker.shard import ShardView

RESUME_ROWS = 500
FAILED_PAUSE_S = 1.0
NODE_SETTLERS = 4  # threads
MOST_UNSETTLED = 8  # batches that wait for them, before the loop claims no more

log = structlog.get_logger()


class LoopContext(NamedTuple):
    """The state that the loops of a worker share."""

    lanes: Mapping[str, Lane]
    dispatcher: Dispatcher
    acks: Acks
    views: Callable[[], Sequence[ShardView]]
    begin_turn: Callable[[], None]  # have shards moved, are targets well again?
    has_shard: Callable[["Loop", ShardView], bool]
    stopping: threading.Event
    monotonic: Callable[[], float]


class Loop:
    """The loop of one node; claims at most one batch per shard and turn.

    `node` is empty on one server. On a Cluster it has threads that settle, too.
    """

    def __init__(self, node: str, shared: LoopContext) -> None:
        self.node = node
        self.views: Sequence[ShardView] = ()  # replaced as a whole
        self.settlers: Executor | None = (
            DaemonExecutor(NODE_SETTLERS, f"settle-{node}") if node else None
        )
        self.claims = Claims(
            shared.lanes, shared.dispatcher, shared.views, shared.stopping, shared.monotonic
        )
        self._shared = shared
        self._woken = threading.Event()
        where = {"node": node} if node else {}
        clock = shared.monotonic
        self._store_outage = Outage("store_unavailable", "store_back", clock, **where)
        self._store_fault = Outage("store_failed", "store_works", clock, **where)
        self._failure = Outage("loop_failed", "loop_recovered", clock, **where)
        self._first = 0
        self._is_retired = False
        self._heartbeat_at = clock()
        self._thread: threading.Thread | None = None

    # ── the flow ────────────────────────────────────────────────────────────────────────────────

    def run_once(self) -> int:
        """Give every shard one turn; return the number of envelopes moved."""
        self._heartbeat()
        self._shared.begin_turn()
        self.claims.is_waiting = False
        for lane in self._shared.lanes.values():
            lane.ping()
        for view in self._shared.acks.overdue(self._has):
            self._shared.dispatcher.send_acks(self._lane(view), view)
        views = self.views
        moved = sum(self._turn(view) for view in self._in_turn(views))
        is_away = self._store_outage.is_on or self._store_fault.is_on
        if is_away and all(view.is_up for view in views):
            self._end_outages()
        return moved

    def _turn(self, view: ShardView) -> int:
        """Give a shard a turn, unless the loop that had it is still in one."""
        self._heartbeat()
        if not view.in_turn.acquire(blocking=False):
            return 0
        try:
            view.take_notes()
            if view.is_pausing or self._shared.stopping.is_set():
                return 0
            return self._guarded(view)
        finally:
            view.in_turn.release()

    def _guarded(self, view: ShardView) -> int:
        try:
            view.refresh()
            moved = self._steps(view)
        except Indeterminate as error:
            self._store_outage.begin(str(error))
            view.mark_unconfirmed()
            return 0
        except StoreUnavailable as error:
            self._store_outage.begin(str(error))
            view.mark_unreachable(str(error) if isinstance(error, WritesRefused) else "")
        except StoreError as error:
            self._store_fault.begin(f"route {view.route.name}: {error}")
            view.mark_unreachable(str(error))
        else:
            view.mark_served()
            return moved
        return 0

    def _steps(self, view: ShardView) -> int:
        claims, moved = self.claims, 0
        steps = [self._reclaim, self._resume, self._promote]
        if not self._is_behind():
            steps += [claims.claim, claims.probe, claims.shunt]
        for step in (*steps, self._tidy):
            if self._shared.stopping.is_set():
                break
            self._heartbeat()  # each call may take the timeout of a store that is away
            moved += step(view)
        return moved

    def _is_behind(self) -> bool:
        """Whether the node settles more slowly than brokers confirm."""
        return isinstance(self.settlers, DaemonExecutor) and self.settlers.waiting >= MOST_UNSETTLED

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
        if view.can_resume:
            self._keep_aside(view)
        for tag, cursor in list(view.resuming.items()) if view.can_resume else ():
            if self._shared.stopping.is_set():
                break
            self._heartbeat()
            reply = view.store.resume(tag, RESUME_ROWS, cursor)
            view.update(reply.poll)
            moved += reply.moved
            if reply.cursor is None:
                del view.resuming[tag]
            else:
                view.resuming[tag] = reply.cursor
        return moved

    def _keep_aside(self, view: ShardView) -> None:
        """Resume nothing more for targets that are held again: their probes search the shard."""
        lane = self._lane(view)
        with lane.lock:
            held = lane.targets.held_by_tag()
        for tag in view.resuming.keys() & held.keys():
            del view.resuming[tag]
            lane.note_shard(held[tag], view.shard)

    def _promote(self, view: ShardView) -> int:
        """Move due envelopes from pending and retry to ready, unless the claim will do so."""
        claim_will = self.claims.can_promote(view) and not self._is_behind()
        if claim_will or not view.promotable:
            return 0
        poll, count = view.store.promote(PROMOTE_ROWS)
        view.update(poll)
        view.gather(count)
        return count

    def _tidy(self, view: ShardView) -> int:
        """Forget expired memory; make due the dead envelopes that waited for another target."""
        moved = 0
        if (mode := view.readdress_mode) is not None:
            moved = view.store.readdress(str(view.dead_letter), RESUME_ROWS, mode=mode)
            view.note_readdressed(moved)
        if view.is_due(view.poll.first_forget_ms):
            poll, _ = view.store.forget()
            view.update(poll)
        return moved

    # ── the turn ────────────────────────────────────────────────────────────────────────────────

    def _lane(self, view: ShardView) -> Lane:
        return self._shared.lanes[view.target.broker]

    def _has(self, view: ShardView) -> bool:
        return self._shared.has_shard(self, view)

    def _in_turn(self, views: Sequence[ShardView]) -> Iterator[ShardView]:
        """Yield every shard once, round-robin by starting position, so that none is starved."""
        self._first = (self._first + 1) % max(1, len(views))
        yield from views[self._first :]
        yield from views[: self._first]

    def _end_outages(self) -> None:
        self._store_outage.end()
        self._store_fault.end()

    # ── the loop ────────────────────────────────────────────────────────────────────────────────

    def start(self) -> None:
        """Run in a thread, until the worker stops or the node has no shard of it any more."""
        name = f"worker-{self.node}" if self.node else "worker"
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        stopping = self._shared.stopping
        while not (stopping.is_set() or self._is_retired):
            self._run_guarded()
            self._woken.clear()
        if self._is_retired:
            self._end_outages()

    def _run_guarded(self) -> None:
        """Take a turn, then sleep until the next known work or a hint.

        Whatever a turn raises is logged once, and the loop goes on after a pause.
        """
        try:
            if not self.run_once():
                self._woken.wait(self.sleep_s())
            self._failure.end()
        except Exception as error:
            self._failure.begin_fault(error)
            self._shared.stopping.wait(FAILED_PAUSE_S)

    def sleep_s(self) -> float:
        """Return seconds until the next known work; at most a second."""
        views = self.views
        waits = [view.sleep_s() for view in views]
        waits += [0.0 for view in views if view.can_resume and not self._is_held_up(view)]
        lanes = (lane.sleep_s() for lane in self._shared.lanes.values())
        acks_s = self._shared.acks.sleep_s(self._has)
        waits += [wait for wait in (*lanes, acks_s) if wait is not None]
        return min(waits, default=1.0)

    @staticmethod
    def _is_held_up(view: ShardView) -> bool:
        return view.in_turn.locked()

    def wake(self) -> None:
        """Start the next turn now. Thread-safe."""
        self._woken.set()

    def retire(self) -> None:
        """End after the turn: the node has none of our shards any more. Thread-safe."""
        self.views = ()
        self._is_retired = True
        self.end_threads()
        self.wake()

    def end_threads(self) -> None:
        """End the threads that settle once they have nothing left to do; does not wait."""
        if self.settlers is not None:
            self.settlers.shutdown(wait=False)

    @property
    def is_alive(self) -> bool:
        """Whether its thread runs."""
        return self._thread is not None and self._thread.is_alive()

    def join(self, seconds: float) -> None:
        """Wait for its thread to end."""
        if self._thread is not None:
            self._thread.join(seconds)

    def _heartbeat(self) -> None:
        self._heartbeat_at = self._shared.monotonic()

    def idle_s(self) -> float:
        """Return seconds since the last step; bounded by 1 s plus one blocking call."""
        return self._shared.monotonic() - self._heartbeat_at
