"""Leases what there is room for: live envelopes, probes of held targets, and dead letters."""

import time
from collections.abc import Callable, Mapping, Sequence

from duebridge.ports.publisher import Reason
from duebridge.store.batching import CALL_BYTES, CALL_ROWS
from duebridge.store.delay_store import NO_CURSOR
from duebridge.store.leases import Claim
from duebridge.store.transitions import NO_TAG, SetAside
from duebridge.telemetry import metrics
from duebridge.worker.batch import Admission, admit, load_of
from duebridge.worker.decide import LEAST_WAIT_MS, Terms
from duebridge.worker.dispatcher import Dispatcher
from duebridge.worker.lanes.lane import Group, Lane
from duebridge.worker.lanes.targets import TargetHealth
from duebridge.worker.lanes.window import EMPTY, Load
from duebridge.worker.settlement import report_buried
from duebridge.worker.shard import BACKLOG, ShardView, claim_batch

PROBE_ROWS = 500
PROBE_PAGES = 20  # of `PROBE_ROWS` retries, in the search for an envelope that tries a target


class Claims:
    """The claims of a worker's loop; none asks for more than lane and target have room for."""

    def __init__(
        self,
        lanes: Mapping[str, Lane],
        dispatcher: Dispatcher,
        views: Callable[[], Sequence[ShardView]],
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._lanes = lanes
        self._dispatcher = dispatcher
        self._views = views
        self._monotonic = monotonic

    def claim(self, view: ShardView) -> int:
        """Lease ready envelopes and hand the batch to the lane's threads."""
        lane = self._lane(view)
        promote_limit = BACKLOG if self.can_promote(view) else 0
        room = self._room(view, lane, promote_limit)
        if not room.envelopes:
            return 0
        alone = not promote_limit and view.poll.suspect > 0 and not lane.has_suspect
        started_at = self._monotonic()
        limit_bytes = min(room.size_bytes, CALL_BYTES)
        claim = claim_batch(view, room.envelopes, limit_bytes, alone=alone, promote=promote_limit)
        _note_claim(view, claim)
        if promote_limit:
            view.gather(claim.held)
        if claim.token:
            terms = Terms.of(view.route)
            admission = admit(lane, view.target, claim, terms, view.now_ms())
            self._dispatcher.dispatch(view, lane, claim, admission, started_at, is_suspect=alone)
        return claim.taken

    def probe(self, view: ShardView) -> int:
        """Try each held target for which envelopes of the shard wait, once a second."""
        lane, shard = self._lane(view), view.store.shard
        moved = 0
        for health in lane.targets.held():
            is_open = lane.may_start_side_batch() and lane.room().envelopes > 0
            if is_open and health.may_probe() and shard in health.aside:
                moved += self._probe_target(view, lane, health)
        return moved

    def _probe_target(self, view: ShardView, lane: Lane, health: TargetHealth) -> int:
        shard, expired = view.store.shard, 0
        search = health.aside[shard]
        for _ in range(PROBE_PAGES):
            started_at = self._monotonic()
            claim, after = view.store.probe(health.tag, view.route.lease, PROBE_ROWS, search.cursor)
            search.cursor = after or NO_CURSOR
            _note_claim(view, claim)
            expired += claim.expired
            if claim.held:
                self._dispatcher.dispatch(
                    view, lane, claim, self._as_probe(view, health, claim), started_at
                )
                return claim.taken
            if after is None:
                lane.end_search(health, shard, search)
                return expired
        health.skip_probe()  # the search goes on then
        return expired

    @staticmethod
    def _as_probe(view: ShardView, health: TargetHealth, claim: Claim) -> Admission:
        """Admit what a probe found, unless another target has the same tag."""
        own = [each for each in claim.leased if view.target_of(each) == health.target]
        others = [SetAside(id=each.id, delay_ms=LEAST_WAIT_MS, tag=NO_TAG) for each in claim.leased]
        if own:
            return Admission([Group(health, own, load_of(own), is_probe=True)], [])
        health.skip_probe()
        return Admission([], [(health, others)])

    def shunt(self, view: ShardView) -> int:
        """Lease due dead envelopes and hand their letters to the lane of their target."""
        if view.dead_letter is None or not view.is_due(view.poll.first_dead_ms):
            return 0
        lane = self._lanes[view.dead_letter.broker]
        health = lane.targets.of(view.dead_letter)
        room = lane.letter_room(serves_live=self._serves_live(lane))
        is_up = health.mode == "up"
        room = room.within(health.window.room()) if is_up else Load(int(health.may_probe()), 1)
        limit = min(room.envelopes, lane.settings.batch, CALL_ROWS)
        is_blocked = view.is_unreadable or not (lane.is_open and lane.may_start_side_batch())
        if not limit or is_blocked:
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
            group = Group(
                health,
                claim.leased,
                Load(len(claim.leased), claim.decoded_bytes),
                is_probe=not is_up,
            )
            admission = Admission([group], [])
            self._dispatcher.dispatch(view, lane, claim, admission, started_at, is_letter=True)
        return claim.held

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
            most = min(most, lane.aside_room())
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


def _note_claim(view: ShardView, claim: Claim) -> None:
    """Note the poll of a claim, and what it buried since it had expired."""
    view.update(claim.poll)
    metrics.count_expired(view.route.name, claim.expired)
    report_buried(view.route.name, Reason.EXPIRED, claim.expired)
