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
from concurrent.futures import Future, wait
from queue import SimpleQueue
from threading import Event

import structlog

from duebridge.errors import StoreError, StoreUnavailable
from duebridge.store.batching import CALL_BYTES, CALL_ROWS, PROMOTE_ROWS
from duebridge.store.delay_store import NO_CURSOR
from duebridge.store.poll import Poll
from duebridge.store.replies import Claim
from duebridge.store.transitions import Decision, Release
from duebridge.telemetry import metrics
from duebridge.telemetry.tracing import Tracing
from duebridge.worker.batch import Admission, Batch, Group, admit, load_of
from duebridge.worker.decide import Terms, wait_for_upgrade
from duebridge.worker.deliverer import Deliverer
from duebridge.worker.lane import Lane
from duebridge.worker.outage import Outage
from duebridge.worker.shard import BACKLOG, ShardView, claim_batch
from duebridge.worker.targets import TargetHealth
from duebridge.worker.window import EMPTY, Load

START_MARGIN_S = 0.5  # reserved from the lease for settling after the publish deadline
RESUME_ROWS = 500
PROBE_PAGES = 20  # of `RESUME_ROWS` retries, in the search for an envelope that tries a target
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
        self._monotonic = monotonic
        self._woken = Event()
        self._stopping = Event()
        self._polls: SimpleQueue[tuple[ShardView, Poll | None]] = SimpleQueue()
        self._deliverer = Deliverer(self._note_poll, monotonic, tracing)
        self._in_flight: dict[Future[None], Batch | None] = {}
        self._store_outage = Outage("store_unavailable", "store_back", monotonic)
        self._first = 0
        self._heartbeat_at = monotonic()

    # ── the flow ────────────────────────────────────────────────────────────────────────────────

    def run_once(self) -> int:
        """Give every shard one turn; return the number of envelopes moved."""
        self._heartbeat()
        self.views = self._wanted
        self._merge_polls()
        for lane in self.lanes.values():
            lane.ping()
            for tag, view in lane.take_recovered():
                view.resuming[tag] = NO_CURSOR
        for view in self._deliverer.acks.overdue():
            self._track(self._lane(view).submit(self._deliverer.ack_waiting, view), None)
        return sum(self._turn(view) for view in self._in_turn())

    def _turn(self, view: ShardView) -> int:
        steps = (self._reclaim, self._resume, self._promote, self._claim, self._probe, self._shunt)
        self._heartbeat()
        if view.is_pausing or self._stopping.is_set():
            return 0
        try:
            view.refresh()
            moved = 0
            for step in (*steps, self._tidy):
                self._heartbeat()  # each call may take the timeout of a store that is away
                moved += step(view)
        except StoreUnavailable as error:
            self._store_outage.begin(str(error))
        except StoreError:
            log.exception("store_failed", route=view.route.name)
        else:
            self._store_outage.end()
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
        if not view.promotable or self._can_promote_inline(view):
            return 0
        poll, count = view.store.promote(PROMOTE_ROWS)
        view.update(poll)
        view.gather(count)
        return count

    def _claim(self, view: ShardView) -> int:
        """Lease ready envelopes and hand the batch to the lane's threads."""
        lane = self._lane(view)
        promote_limit = BACKLOG if self._can_promote_inline(view) else 0
        room = self._room(view, lane, promote_limit)
        if not room.envelopes:
            return 0
        alone = not promote_limit and view.poll.suspect > 0 and not lane.has_suspect
        started_at = self._monotonic()
        limit_bytes = min(room.size_bytes, CALL_BYTES)
        claim = claim_batch(view, room.envelopes, limit_bytes, alone=alone, promote=promote_limit)
        view.update(claim.poll)
        metrics.count_expired(view.route.name, claim.expired)
        if promote_limit:
            view.gather(claim.held)
        if claim.token:
            terms = Terms.of(view.route)
            admission = admit(lane, view.target, claim.leased, terms, view.now_ms())
            self._dispatch(view, lane, claim, admission, started_at, is_suspect=alone)
        return claim.taken

    def _probe(self, view: ShardView) -> int:
        """Try each held target for which envelopes of the shard wait, once a second."""
        lane = self._lane(view)
        if not lane.room().envelopes:
            return 0
        waiting = [each for each in lane.targets.held() if view in each.aside]
        return sum(self._probe_target(view, lane, each) for each in waiting if each.may_probe())

    def _probe_target(self, view: ShardView, lane: Lane, health: TargetHealth) -> int:
        cursor = NO_CURSOR
        for _ in range(PROBE_PAGES):
            started_at = self._monotonic()
            claim, after = view.store.probe(health.tag, view.route.lease, RESUME_ROWS, cursor)
            view.update(claim.poll)
            metrics.count_expired(view.route.name, claim.expired)
            if claim.held:
                group = Group(health, claim.leased, load_of(claim.leased), is_probe=True)
                self._dispatch(view, lane, claim, Admission([group], []), started_at)
                return claim.taken
            if after is None:
                health.aside.discard(view)
                break
            cursor = after
        return 0

    def _shunt(self, view: ShardView) -> int:
        """Lease due dead envelopes and hand their letters to the lane of their target."""
        if view.dead_letter is None or not view.is_due(view.poll.first_dead_ms):
            return 0
        lane = self.lanes[view.dead_letter.broker]
        health = lane.targets.of(view.dead_letter)
        room = lane.letter_room(has_live_work=self._has_live_work(lane))
        is_up = health.mode == "up"
        room = room.within(health.window.room()) if is_up else Load(int(health.may_probe()), 1)
        limit = min(room.envelopes, lane.settings.batch, CALL_ROWS)
        if not limit or not lane.is_open or view.is_unreadable:
            return 0
        started_at = self._monotonic()
        size_bytes = min(room.size_bytes, CALL_BYTES)
        claim = view.store.shunt(
            limit,
            view.route.lease,
            limit_bytes=view.stored_bytes(size_bytes),
            decoded_bytes=size_bytes,
        )
        view.update(claim.poll)
        if claim.token:
            group = Group(health, claim.leased, load_of(claim.leased), is_probe=not is_up)
            admission = Admission([group], [])
            self._dispatch(view, lane, claim, admission, started_at, is_letter=True)
        return claim.held

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

    def _has_live_work(self, lane: Lane) -> bool:
        return any(view.poll.ready for view in self.views if view.target.broker == lane.broker)

    def _can_promote_inline(self, view: ShardView) -> bool:
        """Return whether the claim can also promote: one call instead of two for a trickle."""
        lane = self._lane(view)
        is_plain = not (view.poll.suspect or view.has_backlog or view.is_unreadable)
        if not (is_plain and view.promotable):
            return False
        return lane.room().envelopes > 0 and lane.targets.of(view.target).mode == "up"

    def _room(self, view: ShardView, lane: Lane, promote_limit: int) -> Load:
        """Return how much to claim now; nothing if the lane or the target is full."""
        is_suspect = view.poll.suspect and not lane.has_suspect
        if not (promote_limit or view.poll.ready or is_suspect) or view.is_unreadable:
            return EMPTY
        room = lane.room()
        if not room.envelopes:
            return EMPTY
        most = lane.settings.batch
        if view.route.allow_targets:
            most = min(most, lane.aside_room()) if lane.targets.held() else most
        else:
            room, most = self._target_room(lane, lane.targets.of(view.target), room, most)
        return room._replace(envelopes=min(room.envelopes, most))

    @staticmethod
    def _target_room(lane: Lane, health: TargetHealth, room: Load, most: int) -> tuple[Load, int]:
        """Bound a claim by its only target: what a held one gets is set aside, or tries it."""
        if health.mode == "up":
            return room.within(health.window.room()), most
        probes = int(health.may_probe())
        return room, min(most, max(lane.aside_room(), probes) if health.is_at_fault else probes)

    def _dispatch(
        self,
        view: ShardView,
        lane: Lane,
        claim: Claim,
        admission: Admission,
        started_at: float,
        *,
        is_suspect: bool = False,
        is_letter: bool = False,
    ) -> None:
        lease_s, deadline_s = view.route.lease / 1000, lane.settings.publish_deadline / 1000
        must_start_by = started_at + lease_s - deadline_s - START_MARGIN_S
        newer = [each.id for each in claim.damaged if each.is_too_new]
        damaged = [each for each in claim.damaged if not each.is_too_new]
        batch = Batch(
            view,
            lane,
            claim.token,
            admission.groups,
            damaged,
            must_start_by,
            is_letter,
            is_suspect,
        )
        if newer:
            view.is_unreadable = True
            log.error("record_too_new", route=view.route.name)
        put_back: list[Decision] = [Release(each) for each in claim.surplus]
        put_back += [wait_for_upgrade(each) if is_letter else Release(each) for each in newer]
        for _, aside in admission.aside:
            put_back += aside
            lane.count_aside(len(aside))
        if put_back:
            self._track(lane.submit(self._deliverer.put_back, batch, put_back), None)
        if batch.load.envelopes or damaged:
            self._publish(batch)

    def _publish(self, batch: Batch) -> None:
        batch.lane.begin(batch)
        metrics.claim_size.labels(batch.view.route.name).observe(batch.load.envelopes)
        self._track(batch.lane.submit(self._run, batch), batch)

    def _run(self, batch: Batch) -> None:
        self._deliverer.run(batch)
        self._woken.set()

    def _track(self, future: Future[None], batch: Batch | None) -> None:
        self._in_flight[future] = batch
        future.add_done_callback(lambda done: self._in_flight.pop(done, None))

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
        give_up_at = self._monotonic() + seconds
        for future, batch in list(self._in_flight.items()):
            if batch is not None and future.cancel():
                self._track(batch.lane.submit(self._release, batch), None)
        wait(list(self._in_flight), timeout=seconds)
        for view in self._deliverer.acks.views():
            self._track(self._lane(view).submit(self._deliverer.ack_waiting, view), None)
        wait(list(self._in_flight), timeout=max(0.0, give_up_at - self._monotonic()))

    def _release(self, batch: Batch) -> None:
        self._deliverer.put_back(batch, [Release(each) for each in batch.ids])
        batch.lane.end(batch)
