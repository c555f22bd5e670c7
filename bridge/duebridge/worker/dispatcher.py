"""Hands batches to the threads of their lanes, and knows all that is in flight."""

import time
from collections.abc import Callable
from concurrent.futures import Future, wait

import structlog

from duebridge.store.leases import Claim
from duebridge.store.transitions import NO_TAG, Decision, Release
from duebridge.telemetry import metrics
from duebridge.worker.batch import Admission, Batch
from duebridge.worker.decide import wait_for_upgrade
from duebridge.worker.deliverer import Deliverer
from duebridge.worker.lanes.lane import Lane, Outgoing
from duebridge.worker.lanes.targets import TargetHealth
from duebridge.worker.shard import ShardView

START_MARGIN_S = 0.5  # reserved from the lease for settling after the publish deadline

log = structlog.get_logger()


class Dispatcher:
    """Publishes claims in the background; `on_done` is called when a batch is settled."""

    def __init__(
        self,
        deliverer: Deliverer,
        on_done: Callable[[], None],
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._deliverer = deliverer
        self._on_done = on_done
        self._monotonic = monotonic
        self._in_flight: dict[Future[None], Batch | None] = {}

    def dispatch(
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
        """Publish what is admitted of a claim, and put back the rest."""
        lease_s, deadline_s = view.route.lease / 1000, lane.settings.publish_deadline / 1000
        must_start_by = started_at + lease_s - deadline_s - START_MARGIN_S
        newer = [each.id for each in claim.damaged if each.is_too_new]
        damaged = [each for each in claim.damaged if not each.is_too_new]
        outgoing = Outgoing(admission.groups, is_letter, is_suspect)
        batch = Batch(view, lane, claim.token, outgoing, damaged, must_start_by)
        if newer:
            view.is_unreadable = True
            log.error("record_too_new", route=view.route.name)
        put_back: list[Decision] = [Release(each) for each in claim.surplus]
        put_back += [wait_for_upgrade(each) if is_letter else Release(each) for each in newer]
        waiting: list[TargetHealth] = []
        for health, aside in admission.aside:
            put_back += aside
            lane.count_aside(len(aside))
            waiting += [health] * any(each.tag != NO_TAG for each in aside)
        if put_back:
            self._track(lane.settle(self._deliverer.put_back, batch, put_back, waiting), None)
        if outgoing.load.envelopes or damaged:
            self._publish(batch)

    def _publish(self, batch: Batch) -> None:
        batch.lane.begin(batch.outgoing)
        metrics.claim_size.labels(batch.view.route.name).observe(batch.outgoing.load.envelopes)
        self._track(batch.lane.submit(self._run, batch), batch)

    def _run(self, batch: Batch) -> None:
        self._deliverer.run(batch)
        self._on_done()

    def _track(self, future: Future[None], batch: Batch | None) -> None:
        self._in_flight[future] = batch
        future.add_done_callback(lambda done: self._in_flight.pop(done, None))

    def send_acks(self, lane: Lane, view: ShardView) -> None:
        """Send the buffered acks of a shard in the background."""
        self._track(lane.settle(self._deliverer.ack_waiting, view), None)

    def drain(self, seconds: float, lane_of: Callable[[ShardView], Lane]) -> None:
        """Release batches not yet published; wait up to `seconds` for the others to settle."""
        give_up_at = self._monotonic() + seconds
        for future, batch in list(self._in_flight.items()):
            if batch is not None and future.cancel():
                self._track(batch.lane.settle(self._release, batch), None)
        wait(list(self._in_flight), timeout=seconds)
        for view in self._deliverer.acks.views():
            self.send_acks(lane_of(view), view)
        wait(list(self._in_flight), timeout=max(0.0, give_up_at - self._monotonic()))

    def _release(self, batch: Batch) -> None:
        self._deliverer.put_back(batch, [Release(each) for each in batch.ids])
        batch.lane.end(batch.outgoing)
