"""Hands batches to the threads of their lanes, and knows all that is in flight.

A lane's thread publishes. On one server it settles the batch, too; on a Cluster threads of the
shard's node do, so that a node that is slow, or away, holds up no thread of a lane.
"""

import time
from collections.abc import Callable, Iterable
from concurrent.futures import Executor, Future, wait
from typing import Any, Protocol

import structlog

from duebridge.store.wire.leases import Claim
from duebridge.store.wire.transitions import NO_TAG, Decision, Release, SetAside
from duebridge.telemetry import metrics
from duebridge.worker.batch import Batch
from duebridge.worker.decide import wait_for_upgrade
from duebridge.worker.deliverer import Deliverer, PublishedBatch
from duebridge.worker.lanes.lane import Lane, OutgoingBatch
from duebridge.worker.lanes.targets import TargetHealth
from duebridge.worker.shard import ShardView

START_MARGIN_S = 0.5  # reserved from the lease for settling after the publish deadline

log = structlog.get_logger()


class LoopGroup(Protocol):
    """The interface through which batches reach the loops."""

    def has_room(self) -> None:
        """Start a turn of each loop that waits for room."""

    def ended(self, view: ShardView) -> None:
        """Start a turn of the loop that has a shard."""

    def settlers(self, view: ShardView) -> Executor | None:
        """Return the threads that settle for a shard's node, None for the lane's own."""


class Dispatcher:
    """Publishes claims in the background, and tells the loops what has ended."""

    def __init__(
        self,
        deliverer: Deliverer,
        loops: LoopGroup,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._deliverer = deliverer
        self._loops = loops
        self._monotonic = monotonic
        self._in_flight: dict[Future[None], Batch | None] = {}

    def begin(
        self, view: ShardView, lane: Lane, claim: Claim, outgoing: OutgoingBatch, started_at: float
    ) -> Batch:
        """Count what is admitted of a claim as outstanding; the caller locks, then dispatches."""
        lease_s, deadline_s = view.route.lease / 1000, lane.settings.publish_deadline / 1000
        must_start_by = started_at + lease_s - deadline_s - START_MARGIN_S
        damaged = [each for each in claim.damaged if not each.is_too_new]
        batch = Batch(view, lane, claim.token, outgoing, damaged, must_start_by)
        if batch.has_any:
            lane.begin(outgoing)
        return batch

    def dispatch(
        self,
        batch: Batch,
        claim: Claim,
        aside: Iterable[tuple[TargetHealth, list[SetAside]]],
    ) -> None:
        """Publish a batch, and put back the rest of its claim."""
        view, lane = batch.view, batch.lane
        newer = [each.id for each in claim.damaged if each.is_too_new]
        if newer:
            view.is_unreadable = True
            log.error("record_too_new", route=view.route.name)
        put_back: list[Decision] = [Release(each) for each in claim.surplus]
        put_back += [wait_for_upgrade(each) if batch.is_letter else Release(each) for each in newer]
        waiting: list[TargetHealth] = []
        for health, some in aside:
            put_back += some
            lane.count_aside(len(some))
            waiting += [health] * any(each.tag != NO_TAG for each in some)
        if put_back:
            self._settle(view, lane, self._deliverer.put_back, batch, put_back, waiting)
        if batch.has_any:
            metrics.claim_size.labels(view.route.name).observe(batch.outgoing.load.envelopes)
            self._track(lane.submit(self._run, batch), batch)

    def note_room(self) -> None:
        """Start the loops that wait for room: a claim gave back what it did not use."""
        self._loops.has_room()

    def _run(self, batch: Batch) -> None:
        published = self._deliverer.publish(batch)
        self._loops.has_room()
        if self._loops.settlers(batch.view) is None:
            self._end(batch, published)
        else:
            self._settle(batch.view, batch.lane, self._end, batch, published)

    def _end(self, batch: Batch, published: PublishedBatch | None) -> None:
        if published is not None:
            self._deliverer.settle(batch, published)
        batch.lane.end_suspect(batch.outgoing)
        self._loops.ended(batch.view)

    def _settle(self, view: ShardView, lane: Lane, run: Callable[..., None], *args: Any) -> None:
        """Run a call of a shard's store in the background."""
        settlers = self._loops.settlers(view)
        try:
            future = lane.settle(run, *args) if settlers is None else settlers.submit(run, *args)
        except RuntimeError:  # the node has left the Cluster meanwhile, or the worker has ended
            run(*args)
        else:
            self._track(future, None)

    def _track(self, future: Future[None], batch: Batch | None) -> None:
        self._in_flight[future] = batch
        future.add_done_callback(lambda done: self._in_flight.pop(done, None))

    def send_acks(self, lane: Lane, view: ShardView) -> None:
        """Send the buffered acks of a shard in the background."""
        self._settle(view, lane, self._deliverer.ack_waiting, view)

    def drain(self, seconds: float, lane_of: Callable[[ShardView], Lane]) -> None:
        """Release batches not yet published; wait up to `seconds` for the others to settle."""
        give_up_at = time.monotonic() + seconds
        for future, batch in list(self._in_flight.items()):
            if batch is not None and future.cancel():
                self._settle(batch.view, batch.lane, self._release, batch)
        self._await_all(give_up_at)
        for view in self._deliverer.acks.views():
            self.send_acks(lane_of(view), view)
        self._await_all(give_up_at)

    def _await_all(self, until: float) -> None:
        """Wait for what is in flight, and for what that leaves to settle."""
        while (pending := list(self._in_flight)) and (left_s := until - time.monotonic()) > 0:
            wait(pending, timeout=left_s)

    def _release(self, batch: Batch) -> None:
        self._deliverer.put_back(batch, [Release(each) for each in batch.ids])
        batch.lane.end(batch.outgoing)
        batch.lane.end_suspect(batch.outgoing)
