"""Moves envelopes from due to delivered: promote, claim, publish, settle.

    pending ──promote──▶ ready ──claim──▶ unack ──publish──▶ the broker confirms ──ack──▶ gone
       ▲                   ▲                ├─ retry ───▶ retry ──promote──▶ ready
       │                   └── reclaim ─────┤ (the lease ran out)
       └── replay ── dead ◀── bury ─────────┘ ; a shunt takes dead to the dead-letter target

A worker serves the routes of one lane. Its loop thread polls the store and claims; the lane's
thread pool publishes and settles batches concurrently. The store holds the only durable state.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor, Future, wait
from queue import SimpleQueue
from threading import Event
from typing import NamedTuple

import structlog

from duebridge.errors import StoreError, StoreUnavailable
from duebridge.headers import delivery_headers
from duebridge.ports.publisher import Delivery, Outcome, Verdict
from duebridge.store.batching import CALL_BYTES, CALL_ROWS, PROMOTE_ROWS
from duebridge.store.poll import Poll
from duebridge.store.replies import Claim, LeasedEnvelope, SettleReply
from duebridge.telemetry import metrics
from duebridge.telemetry.tracing import Tracing
from duebridge.worker.dead_letters import Shunter
from duebridge.worker.decide import DecisionContext, decide, decide_damaged
from duebridge.worker.lane import Lane
from duebridge.worker.settlement import Acks, Confirmed, confirmed, report, settle
from duebridge.worker.shard import BACKLOG, ShardView, claim_batch

START_MARGIN_S = 0.5  # reserved from the lease for settling after the publish deadline

log = structlog.get_logger()


class Batch(NamedTuple):
    """One claim in flight; published only if it can still be settled within its lease."""

    view: ShardView
    claim: Claim
    must_start_by: float
    envelopes: int
    size_bytes: int
    is_suspect: bool


class Worker:
    """Delivers the envelopes of one lane's routes; claims at most one batch per shard and turn."""

    def __init__(
        self,
        lane: Lane,
        views: Sequence[ShardView],
        shunter: Shunter,
        threads: Executor,
        monotonic: Callable[[], float] = time.monotonic,
        tracing: Tracing | None = None,
    ) -> None:
        self.lane = lane
        self.views = list(views)
        self._wanted = self.views
        self._shunter = shunter
        self._threads = threads
        self._monotonic = monotonic
        self._tracing = tracing
        self._woken = Event()
        self._acks = Acks(monotonic)
        self._in_flight: dict[Future[None], Batch | None] = {}
        self._thread_polls: SimpleQueue[tuple[ShardView, Poll | None]] = SimpleQueue()
        self._suspect_in_flight = False
        self._first = 0
        self._heartbeat_at = monotonic()

    # ── the flow ────────────────────────────────────────────────────────────────────────────────

    def run_once(self) -> int:
        """Give every shard one turn; return the number of envelopes moved."""
        self._heartbeat()
        self.views = self._wanted
        self._merge_thread_polls()
        self.lane.probe()
        self._ack_all(self._acks.overdue())
        return sum(self._turn(view) for view in self._in_turn())

    def _turn(self, view: ShardView) -> int:
        self._heartbeat()  # an unreachable store blocks every shard's turn for its full timeout
        if view.is_pausing:
            return 0
        try:
            view.refresh()
            moved = self._reclaim(view) + self._promote(view) + self._claim(view)
            return moved + self._shunter.run_once(view) + self._forget(view)
        except StoreUnavailable as error:
            log.warning("store_unavailable", route=view.route.name, error=str(error))
        except StoreError:
            log.exception("store_failed", route=view.route.name)
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
        return count

    def _promote(self, view: ShardView) -> int:
        """Move due envelopes from pending and retry to ready, unless the claim will do so."""
        if not view.promotable or self._can_promote_inline(view):
            return 0
        poll, count = view.store.promote(PROMOTE_ROWS)
        view.update(poll)
        view.gather(count)
        return count

    def _claim(self, view: ShardView) -> int:
        """Lease ready envelopes and dispatch the batch to the lane's thread pool."""
        promote_limit = BACKLOG if self._can_promote_inline(view) else 0
        limit, size = self._room(view, promote_limit)
        if not limit:
            return 0
        alone = not promote_limit and view.poll.suspect > 0 and not self._suspect_in_flight
        started_at = self._monotonic()
        claim = claim_batch(view, limit, size, alone=alone, promote=promote_limit)
        view.update(claim.poll)
        metrics.count_expired(view.route.name, claim.expired)
        if promote_limit:
            view.gather(claim.held)
        if not claim.token:
            return 0
        self._dispatch(view, claim, started_at, is_suspect=alone)
        return claim.held

    def deliver(self, batch: Batch) -> None:
        """Publish a batch, ack the confirmed envelopes and settle the others as `decide` says."""
        view, claim = batch.view, batch.claim
        started_at, started_at_ms = self._monotonic(), view.now_ms()
        outcomes = self._publish(batch)
        answered_at_ms = max(started_at_ms, view.now_ms())
        context = DecisionContext(view.is_past_hold, self.lane.has_answered_since(started_at))
        decisions = [
            decide(leased, outcome, view.route, context)
            for leased, outcome in zip(claim.leased, outcomes, strict=True)
        ]
        decisions += [decide_damaged(damaged) for damaged in claim.damaged]
        target_failed = any(outcome.verdict is Verdict.TARGET_FAILED for outcome in outcomes)
        if target_failed and not view.poll.is_held:
            log.warning("target_failed", route=view.route.name, target=str(view.target))
        self._ack(view, confirmed(claim, decisions), at_once=batch.is_suspect)
        for settled in settle(view.store, claim, decisions, target_failed=target_failed):
            self._note_settled(view, settled)
        report(view.route.name, claim, decisions)
        metrics.count_decisions(view.route.name, decisions)
        metrics.observe_confirmed(view.route.name, claim.leased, outcomes, answered_at_ms)
        if self._tracing is not None:
            between_ms = (started_at_ms, answered_at_ms)
            self._tracing.published(view.route, claim.leased, outcomes, between_ms)

    # ── steps ───────────────────────────────────────────────────────────────────────────────────

    def _publish(self, batch: Batch) -> Sequence[Outcome]:
        if self._monotonic() > batch.must_start_by:
            late = Outcome(Verdict.UNAVAILABLE, error_message="too little of the lease is left")
            return [late] * len(batch.claim.leased)
        return self.lane.publish([delivery(leased, batch.view) for leased in batch.claim.leased])

    def _ack(self, view: ShardView, done: Confirmed, *, at_once: bool = False) -> None:
        """Ack confirmed envelopes together with buffered acks, or buffer them for the next call."""
        at_once |= view.poll.is_held  # the confirm ends the hold
        if due := self._acks.gather(view, done, at_once=at_once):
            for some in due.in_calls():
                answer = view.store.ack(b"".join(some.tokens), some.ids, some.remembered)
                self._note_settled(view, answer)

    def _ack_all(self, views: Sequence[ShardView]) -> None:
        for view in views:
            self._track(self._threads.submit(self._ack_waiting, view), None)

    def _ack_waiting(self, view: ShardView) -> None:
        try:
            self._ack(view, Confirmed(), at_once=True)
        except StoreError as error:  # the leases expire; this counts as no failure
            log.warning("settle_failed", route=view.route.name, error=str(error))

    def _can_promote_inline(self, view: ShardView) -> bool:
        """Return whether the claim can also promote: one call instead of two for a trickle."""
        is_open = not (view.is_held or view.is_unreadable) and self.lane.room()[0] > 0
        is_plain = not view.poll.suspect and not view.has_backlog
        return is_open and is_plain and view.promotable

    def _room(self, view: ShardView, promote_limit: int) -> tuple[int, int]:
        """Return how many envelopes and bytes to claim now; (0, 0) if lane or route is blocked."""
        is_suspect = view.poll.suspect and not self._suspect_in_flight
        if not (promote_limit or view.poll.ready or is_suspect):
            return 0, 0
        limit, size = self.lane.room()
        limit = min(limit, self.lane.settings.batch)
        if view.is_unreadable or not limit:
            return 0, 0
        if view.is_held:
            limit = 1 if view.gate.may_probe() else 0
        return limit, min(size, CALL_BYTES)

    def _dispatch(
        self, view: ShardView, claim: Claim, started_at: float, *, is_suspect: bool
    ) -> None:
        lease_s = view.route.lease / 1000
        deadline_s = self.lane.settings.publish_deadline / 1000
        must_start_by = started_at + lease_s - deadline_s - START_MARGIN_S
        count, size = claim.held, claim.size_bytes
        if any(damaged.is_too_new for damaged in claim.damaged):
            view.is_unreadable = True
            log.error("record_too_new", route=view.route.name)
        self.lane.take(count, size)
        metrics.claim_size.labels(view.route.name).observe(count)
        self._suspect_in_flight |= is_suspect
        batch = Batch(view, claim, must_start_by, count, size, is_suspect)
        self._track(self._threads.submit(self._run_batch, batch), batch)

    def _track(self, future: Future[None], batch: Batch | None) -> None:
        self._in_flight[future] = batch
        future.add_done_callback(lambda done: self._in_flight.pop(done, None))

    def _run_batch(self, batch: Batch) -> None:
        try:
            self.deliver(batch)
        except StoreError as error:  # the leases expire; this counts as no failure
            log.warning("settle_failed", route=batch.view.route.name, error=str(error))
            self._thread_polls.put((batch.view, None))
        except Exception:
            log.exception("batch_failed", route=batch.view.route.name)
        finally:
            self.lane.give_back(batch.envelopes, batch.size_bytes)
            if batch.is_suspect:
                self._suspect_in_flight = False
            self._woken.set()

    def _note_settled(self, view: ShardView, settled: SettleReply) -> None:
        self._thread_polls.put((view, settled.poll))
        if settled.stale and not settled.repeated:
            metrics.leases_lost.labels(view.route.name).inc(len(settled.stale))
            log.warning("lease_lost", route=view.route.name, count=len(settled.stale))

    def _merge_thread_polls(self) -> None:
        while not self._thread_polls.empty():
            view, poll = self._thread_polls.get()
            view.merge_poll(poll)

    def _forget(self, view: ShardView) -> int:
        if not view.is_due(view.poll.first_forget_ms):
            return 0
        poll, _ = view.store.forget()
        view.update(poll)
        return 0

    def _in_turn(self) -> Iterator[ShardView]:
        """Yield every shard once, round-robin by starting position, so that none is starved."""
        self._first = (self._first + 1) % max(1, len(self.views))
        yield from self.views[self._first :]
        yield from self.views[: self._first]

    # ── the loop ────────────────────────────────────────────────────────────────────────────────

    def run(self, stop: Event) -> None:
        """Run until `stop` is set; sleep between turns until the next known work or a hint."""
        while not stop.is_set():
            if not self.run_once():
                self._woken.wait(self.sleep_s())
            self._woken.clear()

    def sleep_s(self) -> float:
        """Return seconds until the next known work; at most a second."""
        waits = [view.sleep_s() for view in self.views]
        waits += [self._shunter.sleep_s(view) for view in self.views]
        waits += [wait for wait in (self.lane.sleep_s(), self._acks.sleep_s()) if wait is not None]
        waits += [view.gate.sleep_s() for view in self.views if view.is_held and view.poll.ready]
        return min(waits, default=1.0)

    def wake(self, view: ShardView | None = None) -> None:
        """Start the next turn now; given a shard, poll it first. Thread-safe."""
        if view is not None:
            self._thread_polls.put((view, None))
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
        give_up_at = self._monotonic() + seconds
        for future, batch in list(self._in_flight.items()):
            if future.cancel() and batch is not None:
                self._release(batch)
        wait(list(self._in_flight), timeout=seconds)
        self._ack_all(self._acks.views())
        wait(list(self._in_flight), timeout=max(0.0, give_up_at - self._monotonic()))

    def _release(self, batch: Batch) -> None:
        try:
            batch.view.store.release(batch.claim.token, batch.claim.ids)
        except StoreError as error:  # the leases expire
            log.warning("release_failed", route=batch.view.route.name, error=str(error))
        self.lane.give_back(batch.envelopes, batch.size_bytes)


def delivery(leased: LeasedEnvelope, view: ShardView) -> Delivery:
    """Return the delivery of a leased envelope, with the bridge's headers."""
    content = leased.content
    return Delivery(
        leased.id,
        content.target or view.target,
        content.body,
        content.key,
        delivery_headers(leased, view.route.name),
        content.properties,
    )
