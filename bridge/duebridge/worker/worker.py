"""The flow of an envelope: due, promoted, claimed, published, confirmed, acked.

    pending ──promote──▶ ready ──claim──▶ unack ──publish──▶ the broker confirms ──ack──▶ gone
       ▲                   ▲                ├─ retry ───▶ retry ──promote──▶ ready
       │                   └── reclaim ─────┤ (the lease ran out)
       └── replay ── dead ◀── bury ─────────┘ ; a shunt takes dead to the dead-letter target

A worker does this for the routes of one lane. Its own thread asks the store and claims; batches
are published and settled in the lane's threads, several at once. All truth is in the store.
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
from duebridge.worker.decide import Circumstances, decide, decide_damaged
from duebridge.worker.lane import Lane
from duebridge.worker.settlement import Acks, Confirmed, confirmed, report, settle
from duebridge.worker.shard import BACKLOG, Station, claim_batch

START_MARGIN_S = 0.5  # of a lease, kept for settling after the publish deadline

log = structlog.get_logger()


class Batch(NamedTuple):
    """One claim on its way; published only if it can still be settled within its lease."""

    station: Station
    claim: Claim
    must_start_by: float
    envelopes: int
    size_bytes: int
    is_suspect: bool


class Worker:
    """Moves the envelopes of one lane's routes, at most one batch per shard and turn."""

    def __init__(
        self,
        lane: Lane,
        stations: Sequence[Station],
        shunter: Shunter,
        threads: Executor,
        monotonic: Callable[[], float] = time.monotonic,
        tracing: Tracing | None = None,
    ) -> None:
        self.lane = lane
        self.stations = list(stations)
        self._wanted = self.stations
        self._shunter = shunter
        self._threads = threads
        self._monotonic = monotonic
        self._tracing = tracing
        self._woken = Event()
        self._acks = Acks(monotonic)
        self._under_way: dict[Future[None], Batch | None] = {}
        self._overheard: SimpleQueue[tuple[Station, Poll | None]] = SimpleQueue()
        self._suspect_under_way = False
        self._first = 0
        self._stirred_at = monotonic()

    # ── the flow ────────────────────────────────────────────────────────────────────────────────

    def run_once(self) -> int:
        """Give every shard one turn; returns how many envelopes moved."""
        self._stir()
        self.stations = self._wanted
        self._listen()
        self.lane.probe()
        self._ack_all(self._acks.overdue())
        return sum(self._turn(station) for station in self._in_turn())

    def _turn(self, station: Station) -> int:
        self._stir()  # a store that does not answer holds up each station by itself
        if station.is_pausing:
            return 0
        try:
            station.ask()
            moved = self._reclaim(station) + self._promote(station) + self._claim(station)
            return moved + self._shunter.run_once(station) + self._forget(station)
        except StoreUnavailable as error:
            log.warning("store_unavailable", route=station.route.name, error=str(error))
        except StoreError:
            log.exception("store_failed", route=station.route.name)
        station.miss()
        return 0

    def _reclaim(self, station: Station) -> int:
        """Unack → ready: leases that ran out."""
        if not station.is_due(station.poll.first_unack_ms):
            return 0
        poll, count, poisoned = station.store.reclaim(
            CALL_ROWS, poison=station.route.poison, counted=station.counts_expiries
        )
        station.hear(poll)
        metrics.count_reclaimed(station.route.name, count, poisoned)
        log.warning("reclaimed", route=station.route.name, count=count)
        return count

    def _promote(self, station: Station) -> int:
        """Pending, retry → ready: what is due; a trickle is promoted by its claim."""
        if not station.promotable or self._is_trickle(station):
            return 0
        poll, count = station.store.promote(PROMOTE_ROWS)
        station.hear(poll)
        station.gather(count)
        return count

    def _claim(self, station: Station) -> int:
        """Ready → unack, and on to the lane's threads."""
        few = BACKLOG if self._is_trickle(station) else 0
        limit, size = self._room(station, few)
        if not limit:
            return 0
        alone = not few and station.poll.suspect > 0 and not self._suspect_under_way
        started_at = self._monotonic()
        claim = claim_batch(station, limit, size, alone=alone, promote=few)
        station.hear(claim.poll)
        metrics.count_expired(station.route.name, claim.expired)
        if few:
            station.gather(claim.held)
        if not claim.token:
            return 0
        self._send_off(station, claim, started_at, is_suspect=alone)
        return claim.held

    def deliver(self, batch: Batch) -> None:
        """Publish → settle: an ack for each confirm, and for the rest what `decide` says."""
        station, claim = batch.station, batch.claim
        started_at, started_at_ms = self._monotonic(), station.now_ms()
        outcomes = self._publish(batch)
        answered_at_ms = max(started_at_ms, station.now_ms())
        around = Circumstances(station.is_past_hold, self.lane.has_answered_since(started_at))
        decisions = [
            decide(leased, outcome, station.route, around)
            for leased, outcome in zip(claim.leased, outcomes, strict=True)
        ]
        decisions += [decide_damaged(damaged) for damaged in claim.damaged]
        target_failed = any(outcome.verdict is Verdict.TARGET_FAILED for outcome in outcomes)
        if target_failed and not station.poll.is_held:
            log.warning("target_failed", route=station.route.name, target=str(station.target))
        self._ack(station, confirmed(claim, decisions), at_once=batch.is_suspect)
        for settled in settle(station.store, claim, decisions, target_failed=target_failed):
            self._hear_settled(station, settled)
        report(station.route.name, claim, decisions)
        metrics.count_decisions(station.route.name, decisions)
        metrics.observe_confirmed(station.route.name, claim.leased, outcomes, answered_at_ms)
        if self._tracing is not None:
            between = (started_at_ms, answered_at_ms)
            self._tracing.published(station.route, claim.leased, outcomes, between)

    # ── its parts ───────────────────────────────────────────────────────────────────────────────

    def _publish(self, batch: Batch) -> Sequence[Outcome]:
        if self._monotonic() > batch.must_start_by:
            late = Outcome(Verdict.UNAVAILABLE, error_message="too little of the lease is left")
            return [late] * len(batch.claim.leased)
        return self.lane.publish([delivery(leased, batch.station) for leased in batch.claim.leased])

    def _ack(self, station: Station, done: Confirmed, *, at_once: bool = False) -> None:
        """Ack what was confirmed, with what waited; or let it wait for others."""
        at_once |= station.poll.is_held  # the confirm ends the hold
        if due := self._acks.gather(station, done, at_once=at_once):
            for some in due.in_calls():
                answer = station.store.ack(b"".join(some.tokens), some.ids, some.remembered)
                self._hear_settled(station, answer)

    def _ack_all(self, stations: Sequence[Station]) -> None:
        for station in stations:
            self._under_way_now(self._threads.submit(self._ack_waiting, station), None)

    def _ack_waiting(self, station: Station) -> None:
        try:
            self._ack(station, Confirmed(), at_once=True)
        except StoreError as error:  # the leases run out, and count as nobody's failure
            log.warning("settle_failed", route=station.route.name, error=str(error))

    def _is_trickle(self, station: Station) -> bool:
        """Whether what is due is promoted by its claim: one call instead of two, while few are."""
        is_open = not (station.is_held or station.is_unreadable) and self.lane.room()[0] > 0
        is_plain = not station.poll.suspect and not station.has_backlog
        return is_open and is_plain and station.promotable

    def _room(self, station: Station, few: int) -> tuple[int, int]:
        """Return how many envelopes and bytes to claim now; none while lane or route is shut."""
        is_suspect = station.poll.suspect and not self._suspect_under_way
        if not (few or station.poll.ready or is_suspect):
            return 0, 0
        limit, size = self.lane.room()
        limit = min(limit, self.lane.settings.batch)
        if station.is_unreadable or not limit:
            return 0, 0
        if station.is_held:
            limit = 1 if station.gate.may_probe() else 0
        return limit, min(size, CALL_BYTES)

    def _send_off(
        self, station: Station, claim: Claim, started_at: float, *, is_suspect: bool
    ) -> None:
        lease_s = station.route.lease / 1000
        deadline_s = self.lane.settings.publish_deadline / 1000
        must_start_by = started_at + lease_s - deadline_s - START_MARGIN_S
        count, size = claim.held, claim.size_bytes
        if any(damaged.is_too_new for damaged in claim.damaged):
            station.is_unreadable = True
            log.error("record_too_new", route=station.route.name)
        self.lane.take(count, size)
        metrics.claim_size.labels(station.route.name).observe(count)
        self._suspect_under_way |= is_suspect
        batch = Batch(station, claim, must_start_by, count, size, is_suspect)
        self._under_way_now(self._threads.submit(self._run_batch, batch), batch)

    def _under_way_now(self, future: Future[None], batch: Batch | None) -> None:
        self._under_way[future] = batch
        future.add_done_callback(lambda done: self._under_way.pop(done, None))

    def _run_batch(self, batch: Batch) -> None:
        try:
            self.deliver(batch)
        except StoreError as error:  # the leases run out, and count as nobody's failure
            log.warning("settle_failed", route=batch.station.route.name, error=str(error))
            self._overheard.put((batch.station, None))
        except Exception:
            log.exception("batch_failed", route=batch.station.route.name)
        finally:
            self.lane.give_back(batch.envelopes, batch.size_bytes)
            if batch.is_suspect:
                self._suspect_under_way = False
            self._woken.set()

    def _hear_settled(self, station: Station, settled: SettleReply) -> None:
        self._overheard.put((station, settled.poll))
        if settled.stale and not settled.repeated:
            metrics.leases_lost.labels(station.route.name).inc(len(settled.stale))
            log.warning("lease_lost", route=station.route.name, count=len(settled.stale))

    def _listen(self) -> None:
        while not self._overheard.empty():
            station, poll = self._overheard.get()
            station.overhear(poll)

    def _forget(self, station: Station) -> int:
        if not station.is_due(station.poll.first_forget_ms):
            return 0
        poll, _ = station.store.forget()
        station.hear(poll)
        return 0

    def _in_turn(self) -> Iterator[Station]:
        """Every shard once, another first each time, so that none starves the others."""
        self._first = (self._first + 1) % max(1, len(self.stations))
        yield from self.stations[self._first :]
        yield from self.stations[: self._first]

    # ── the loop ────────────────────────────────────────────────────────────────────────────────

    def run(self, stop: Event) -> None:
        """Work until told to stop; sleeps until the next time it knows, or a hint."""
        while not stop.is_set():
            if not self.run_once():
                self._woken.wait(self.sleep_s())
            self._woken.clear()

    def sleep_s(self) -> float:
        """Seconds until there is something to do, as far as is known."""
        waits = [station.sleep_s() for station in self.stations]
        waits += [self._shunter.sleep_s(station) for station in self.stations]
        waits += [each for each in (self.lane.sleep_s(), self._acks.sleep_s()) if each is not None]
        waits += [each.gate.sleep_s() for each in self.stations if each.is_held and each.poll.ready]
        return min(waits, default=1.0)

    def wake(self, station: Station | None = None) -> None:
        """Look again now; for one shard, ask the store first."""
        if station is not None:
            self._overheard.put((station, None))
        self._woken.set()

    def swap(self, stations: Sequence[Station]) -> None:
        """Serve these shards instead, from the next turn on; may be called by any thread.

        A batch that is under way is settled by the route that it was claimed under.
        """
        self._wanted = list(stations)
        self.wake()

    def _stir(self) -> None:
        self._stirred_at = self._monotonic()

    def idle_s(self) -> float:
        """Seconds since the loop last went on: at most a second, or a call of store or broker."""
        return self._monotonic() - self._stirred_at

    def drain(self, seconds: float) -> None:
        """Give back what no broker's client has yet, and wait for the rest to be settled."""
        give_up_at = self._monotonic() + seconds
        for future, batch in list(self._under_way.items()):
            if future.cancel() and batch is not None:
                self._release(batch)
        wait(list(self._under_way), timeout=seconds)
        self._ack_all(self._acks.stations())
        wait(list(self._under_way), timeout=max(0.0, give_up_at - self._monotonic()))

    def _release(self, batch: Batch) -> None:
        try:
            batch.station.store.release(batch.claim.token, batch.claim.ids)
        except StoreError as error:  # the leases run out
            log.warning("release_failed", route=batch.station.route.name, error=str(error))
        self.lane.give_back(batch.envelopes, batch.size_bytes)


def delivery(leased: LeasedEnvelope, station: Station) -> Delivery:
    """Return what the broker gets."""
    content = leased.content
    return Delivery(
        leased.id,
        content.target or station.target,
        content.body,
        content.key,
        delivery_headers(leased, station.route.name),
        content.properties,
    )
