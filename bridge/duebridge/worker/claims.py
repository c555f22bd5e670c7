"""Leases what there is room for: live envelopes, probes of held targets, and dead letters.

The loops of a worker share its lanes. A claim reserves its room while the store answers, and
gives it back in one step with counting what it brought.
"""

import threading
import time
from collections.abc import Callable, Mapping, Sequence

from duebridge.ports.publisher import Reason
from duebridge.store.batching import CALL_BYTES, CALL_ROWS
from duebridge.store.delay_store import NO_CURSOR
from duebridge.store.wire.leases import Claim
from duebridge.store.wire.transitions import NO_TAG, SetAside
from duebridge.telemetry import metrics
from duebridge.worker.batch import Admission, admit, load_of
from duebridge.worker.decide import SET_ASIDE_MS, RetryRules
from duebridge.worker.dispatcher import Dispatcher
from duebridge.worker.lanes.lane import Lane, OutgoingBatch, TargetGroup
from duebridge.worker.lanes.reservation import Reservation
from duebridge.worker.lanes.targets import ProbeCursor, TargetHealth
from duebridge.worker.lanes.window import Load
from duebridge.worker.settlement import report_buried
from duebridge.worker.shard import BACKLOG, ShardView, claim_batch

PROMOTED_BY_CLAIM = BACKLOG  # at most: a claim that promotes as many has found a backlog
PROBE_ROWS = 500
PROBE_PAGES = 20  # of `PROBE_ROWS` retries, in the search for an envelope that tries a target
PROBE_FOR_S = 0.05  # in a turn, however many targets are held: the others wait for their claims


class Claims:
    """The claims of one loop; none asks for more than lane and target have room for.

    `is_waiting`: work was left since the beginning of the turn, for want of room.
    """

    def __init__(
        self,
        lanes: Mapping[str, Lane],
        dispatcher: Dispatcher,
        views: Callable[[], Sequence[ShardView]],
        stopping: threading.Event,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._lanes = lanes
        self._dispatcher = dispatcher
        self._views = views
        self._stopping = stopping
        self._monotonic = monotonic
        self.is_waiting = False

    # ── live envelopes ──────────────────────────────────────────────────────────────────────────

    def claim(self, view: ShardView) -> int:
        """Lease ready envelopes and hand the batch to the lane's threads."""
        lane = self._lane(view)
        promote_limit = PROMOTED_BY_CLAIM if self.can_promote(view) else 0
        if not self._has_work(view, promote_limit):
            return 0
        reservation = self._reserved_or_waiting(lambda: self._reserve(view, lane, promote_limit))
        if reservation is None:
            return 0
        started_at = self._monotonic()
        try:
            claim = claim_batch(
                view,
                reservation.room.envelopes,
                reservation.room.size_bytes,
                alone=reservation.is_suspect,
                promote=promote_limit,
                is_over=self._stopping.is_set,
            )
            _note_claim(view, claim)
            if promote_limit:
                view.gather(claim.held)
            if claim.token:
                self._admit(view, lane, claim, reservation, started_at)
        finally:
            self._give_back(reservation)
        return claim.taken

    def _admit(
        self,
        view: ShardView,
        lane: Lane,
        claim: Claim,
        reservation: Reservation,
        started_at: float,
    ) -> None:
        """Publish what there is room for, and set the rest aside."""
        rules, now_ms = RetryRules.of(view.route), view.now_ms()
        with lane.lock:
            reservation.release()
            has_room = reservation.is_for_target
            admission = admit(lane, view.target, claim, rules, now_ms, has_room=has_room)
            outgoing = OutgoingBatch(admission.groups, is_suspect=reservation.is_suspect)
            batch = self._dispatcher.begin(view, lane, claim, outgoing, started_at)
        self._dispatcher.dispatch(batch, claim, admission.aside)

    def _reserved_or_waiting(self, reserve: Callable[[], Reservation | None]) -> Reservation | None:
        """Return what `reserve` does; whoever frees room later finds that the loop waits for it."""
        was_waiting, self.is_waiting = self.is_waiting, True
        reservation = reserve()
        if reservation is not None:
            self.is_waiting = was_waiting
        return reservation

    def _give_back(self, reservation: Reservation) -> None:
        """Give back the room of a claim that failed or brought nothing; others may wait for it."""
        if reservation.release():
            self._dispatcher.note_room()

    # ── probes ──────────────────────────────────────────────────────────────────────────────────

    def probe(self, view: ShardView) -> int:
        """Try each held target for which envelopes of the shard wait, once a second.

        Of many the turn tries some: those first that have waited longest.
        """
        lane, moved = self._lane(view), 0
        until = self._monotonic() + PROBE_FOR_S
        for health in lane.probes_due(view.shard):
            if self._stopping.is_set() or self._monotonic() > until:
                break
            with lane.lock:
                search = health.aside.get(view.shard)
                is_open = lane.may_probe(health) and lane.room().envelopes > 0
                may_search = search is not None and is_open and health.begin_search()
            if search is not None and may_search:
                try:
                    moved += self._probe_target(view, lane, health, search, until)
                finally:
                    health.end_search()
        return moved

    def _probe_target(
        self, view: ShardView, lane: Lane, health: TargetHealth, search: ProbeCursor, until: float
    ) -> int:
        expired = 0
        for _ in range(PROBE_PAGES):
            started_at = self._monotonic()
            if self._stopping.is_set() or started_at > until:
                break
            claim, after = view.store.probe(health.tag, view.route.lease, PROBE_ROWS, search.cursor)
            search.cursor = after or NO_CURSOR
            _note_claim(view, claim)
            expired += claim.expired
            if claim.held:
                with lane.lock:
                    admission = self._as_probe(view, lane, health, claim)
                    outgoing = OutgoingBatch(admission.groups)
                    batch = self._dispatcher.begin(view, lane, claim, outgoing, started_at)
                self._dispatcher.dispatch(batch, claim, admission.aside)
                return claim.taken
            if after is None:
                lane.end_search(health, view.shard, search)
                return expired
        health.skip_probe()  # the search goes on then
        return expired

    @staticmethod
    def _as_probe(view: ShardView, lane: Lane, health: TargetHealth, claim: Claim) -> Admission:
        """Admit what a probe found, unless another target has the same tag, or it is tried now."""
        own = [each for each in claim.leased if view.target_of(each) == health.target]
        others = [SetAside(id=each.id, delay_ms=SET_ASIDE_MS, tag=NO_TAG) for each in claim.leased]
        if own and health.mode == "held" and lane.may_start_side_batch():
            return Admission([TargetGroup(health, own, load_of(own), is_probe=True)], [])
        if not own:
            health.skip_probe()
        return Admission([], [(health, others)])

    # ── dead letters ────────────────────────────────────────────────────────────────────────────

    def shunt(self, view: ShardView) -> int:
        """Lease due dead envelopes and hand their letters to the lane of their target."""
        to = view.dead_letter
        if to is None or view.is_unreadable or not view.is_due(view.poll.first_dead_ms):
            return 0
        lane = self._lanes[to.broker]
        with lane.lock:
            health = lane.targets.of(to)
            reservation = self._reserved_or_waiting(lambda: self._reserve_for_letters(lane, health))
        if reservation is None:
            return 0
        started_at = self._monotonic()
        try:
            claim = view.store.shunt(
                reservation.room.envelopes,
                view.route.lease,
                limit_bytes=view.stored_bytes(reservation.room.size_bytes),
                decoded_bytes=reservation.room.size_bytes,
            )
            view.update(claim.poll)
            view.is_unconfirmed = False
            if claim.token:
                self._admit_letters(view, lane, claim, (health, reservation), started_at)
        finally:
            self._give_back(reservation)
        return claim.held

    def _reserve_for_letters(self, lane: Lane, health: TargetHealth) -> Reservation | None:
        """Reserve room for dead letters; None if there is none, or no thread for them."""
        if not (lane.is_open and lane.may_start_side_batch()):
            return None
        room = lane.letter_room(serves_live=self._serves_live(lane))
        is_up = health.mode == "up"
        if is_up:
            room = room.within(lane.share_of(health.window))
        else:
            room = Load(int(health.may_probe()), 1)
        room = room.within(Load(min(lane.settings.batch, CALL_ROWS), CALL_BYTES))
        if not room.envelopes:
            return None
        return Reservation(lane, room, health if is_up else None, is_letter=True)

    def _admit_letters(
        self,
        view: ShardView,
        lane: Lane,
        claim: Claim,
        to: tuple[TargetHealth, Reservation],
        started_at: float,
    ) -> None:
        """Publish letters, unless another loop's take the threads, or try the target, by now."""
        health, reservation = to
        with lane.lock:
            reservation.release()
            is_up = health.mode == "up"
            if not (lane.may_start_side_batch() and (is_up or health.may_probe())):
                claim = claim._replace(leased=[], damaged=[], surplus=tuple(claim.ids))
            load = Load(len(claim.leased), claim.decoded_bytes if claim.leased else 0)
            group = TargetGroup(health, claim.leased, load, is_probe=not is_up)
            outgoing = OutgoingBatch([group], is_letter=True)
            batch = self._dispatcher.begin(view, lane, claim, outgoing, started_at)
        self._dispatcher.dispatch(batch, claim, [])

    # ── room ────────────────────────────────────────────────────────────────────────────────────

    def _lane(self, view: ShardView) -> Lane:
        return self._lanes[view.target.broker]

    def _serves_live(self, lane: Lane) -> bool:
        return any(view.target.broker == lane.broker for view in self._views())

    def can_promote(self, view: ShardView) -> bool:
        """Return whether the claim can also promote: one call instead of two for a trickle."""
        lane = self._lane(view)
        is_plain = not (view.poll.suspect or view.has_backlog or view.is_unreadable)
        if not (is_plain and view.promotable):
            return False
        with lane.lock:
            return lane.room().envelopes > 0 and lane.targets.of(view.target).mode == "up"

    @staticmethod
    def _has_work(view: ShardView, promote_limit: int) -> bool:
        has_any = promote_limit or view.poll.ready or view.poll.suspect
        return bool(has_any) and not view.is_unreadable

    def _reserve(self, view: ShardView, lane: Lane, promote_limit: int) -> Reservation | None:
        """Reserve room for a claim; None if the lane or the target is full."""
        with lane.lock:
            is_suspect = not promote_limit and view.poll.suspect > 0 and not lane.has_suspect
            if not (promote_limit or view.poll.ready or is_suspect):
                return None
            health = None if view.route.allow_targets else lane.targets.of(view.target)
            room = self._room(lane, health)
            if not room.envelopes:
                return None
            is_up = health is not None and health.mode == "up"
            return Reservation(lane, room, health if is_up else None, is_suspect=is_suspect)

    @staticmethod
    def _room(lane: Lane, health: TargetHealth | None) -> Load:
        """Return the room for a claim; `health` is that of the only target.

        What a held one gets is set aside, or tries it.
        """
        room = lane.room().within(Load(lane.settings.batch, CALL_BYTES))
        if health is not None and health.mode == "up":
            return room.within(lane.share_of(health.window))
        most = lane.aside_room()
        if health is not None:
            probes = int(lane.may_probe(health))
            most = max(most, probes) if health.is_at_fault else probes
        return room._replace(envelopes=min(room.envelopes, most))


def _note_claim(view: ShardView, claim: Claim) -> None:
    """Note the poll of a confirmed claim, and what it buried since it had expired."""
    view.update(claim.poll)
    view.is_unconfirmed = False
    metrics.count_expired(view.route.name, claim.expired)
    report_buried(view.route.name, Reason.EXPIRED, claim.expired)
