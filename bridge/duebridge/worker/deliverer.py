"""Publishes a batch on a thread of its lane, judges its targets, and settles it in the store."""

import time
from collections.abc import Callable, Iterable, Sequence
from itertools import compress
from typing import NamedTuple

import structlog

from duebridge.errors import StoreError, described, on_one_line
from duebridge.ports.publisher import Outcome, Verdict
from duebridge.store.batching import in_calls
from duebridge.store.wire.replies import SettleReply
from duebridge.store.wire.transitions import Ack, Burial, Decision, Retry, SetAside
from duebridge.telemetry import metrics
from duebridge.telemetry.outage import Outage
from duebridge.telemetry.tracing import Tracing
from duebridge.worker.batch import Batch, of_another_broker
from duebridge.worker.decide import (
    DeliveryContext,
    RetryRules,
    decide,
    decide_damaged,
    decide_damaged_letter,
)
from duebridge.worker.lanes.lane import TargetGroup
from duebridge.worker.lanes.targets import TargetHealth
from duebridge.worker.settlement import Acks, report, settle, settle_letters
from duebridge.worker.shard import ShardView

log = structlog.get_logger()

_LATE = Outcome(Verdict.UNAVAILABLE, error_message="too little of the lease is left")


class PublishedBatch(NamedTuple):
    """A batch's outcomes and decisions, and when it was begun and answered."""

    outcomes: Sequence[Outcome]
    decisions: list[Decision]
    waiting: list[TargetHealth]  # targets for which some are set aside
    between_ms: tuple[int, int]


class Deliverer:
    """Runs batches, many at a time: publishes and judges them, then settles them."""

    def __init__(
        self,
        monotonic: Callable[[], float] = time.monotonic,
        tracing: Tracing | None = None,
    ) -> None:
        self.acks = Acks(monotonic)
        self._monotonic = monotonic
        self._tracing = tracing
        self._outages: dict[str, Outage] = {}  # by node of a Cluster
        self._faults: dict[str, Outage] = {}  # by route

    def publish(self, batch: Batch) -> PublishedBatch | None:
        """Publish a batch; whatever happens, its share of the windows is given back.

        None if an error, which is logged, left nothing to settle.
        """
        outcomes: Sequence[Outcome] = ()
        try:
            started_at, started_at_ms = self._monotonic(), batch.view.now_ms()
            outcomes = self._publish(batch)
            answered_at_ms = max(started_at_ms, batch.view.now_ms())
            count_confirmed(batch, outcomes, answered_at_ms)
            decisions, waiting = self._judge(batch, outcomes, started_at, answered_at_ms)
            return PublishedBatch(outcomes, decisions, waiting, (started_at_ms, answered_at_ms))
        except Exception as error:
            self._fault(batch.view).begin_fault(error)
            return None
        finally:
            batch.lane.end(batch.outgoing, outcomes)

    def settle(self, batch: Batch, published: PublishedBatch) -> None:
        """Ack the confirmed envelopes of a batch, and settle the others as decided."""
        try:
            try:
                self._settle(batch, published)
            finally:  # an attempt that the store fails to note was made all the same
                self._trace(batch, published.outcomes, published.between_ms)
            self._fault(batch.view).end()
        except StoreError as error:  # the leases expire; this counts as no failure
            self._outage(batch.view).begin(str(error))
            batch.view.note_poll(None)
        except Exception as error:
            self._fault(batch.view).begin_fault(error)

    def _publish(self, batch: Batch) -> Sequence[Outcome]:
        if self._monotonic() > batch.must_start_by:
            return [_LATE] * batch.messages
        deliveries = batch.deliveries()
        if batch.is_of_one_broker:
            return batch.lane.publish(deliveries)
        broker = batch.view.target.broker
        is_here = [each.target.broker == broker for each in deliveries]
        answers = iter(batch.lane.publish([*compress(deliveries, is_here)]))
        return [
            next(answers) if here else of_another_broker(each.target, broker)
            for each, here in zip(deliveries, is_here, strict=True)
        ]

    def _judge(
        self, batch: Batch, outcomes: Sequence[Outcome], started_at: float, now_ms: int
    ) -> tuple[list[Decision], list[TargetHealth]]:
        """Judge the targets; return decisions, and the targets that some are to await."""
        decisions: list[Decision] = []
        waiting: list[TargetHealth] = []
        for group, some in batch.outgoing.by_group(outcomes):
            decided = self._decide(batch, group, some, started_at, now_ms)
            decisions += decided
            waiting += [group.health] * any(isinstance(each, SetAside) for each in decided)
        return [*decisions, *damaged_decisions(batch, outcomes)], waiting

    def _settle(self, batch: Batch, published: PublishedBatch) -> None:
        acks = acks_of(batch, published.outcomes)
        if batch.is_letter:
            self._settle_letters(batch, acks, published.decisions)
        else:
            self.ack(batch.view, acks, at_once=batch.outgoing.is_suspect)
            self._carry_out(batch, published.decisions)
        self._note_aside(batch, published.waiting)

    def _carry_out(self, batch: Batch, decisions: Sequence[Decision]) -> None:
        """Settle as decided; count and log what the store did, also if it fails halfway."""
        done: list[Decision] = []
        try:
            for some, reply in settle(batch.view, batch.token, decisions):
                self._note_settled(batch.view, reply)
                done += reply.applied(some)
        finally:
            metrics.count_decisions(batch.view.route.name, done)
            report_batch(batch, done)

    def _decide(
        self,
        batch: Batch,
        group: TargetGroup,
        outcomes: Sequence[Outcome],
        started_at: float,
        now_ms: int,
    ) -> list[Decision]:
        health, lane = group.health, batch.lane
        lane.judge(health, outcomes, started_at)
        if all(outcome.verdict is Verdict.CONFIRMED for outcome in outcomes):
            return []
        rules = RetryRules.of(batch.view.route, is_letter=batch.is_letter)
        is_held = health.mode != "up"
        later = started_at + lane.settings.publish_deadline / 2000
        return [
            decide(
                leased,
                outcome,
                rules,
                DeliveryContext(
                    now_ms, health.tag, is_held, health.answered_since(later, outcome.part)
                ),
            )
            for leased, outcome in zip(group.leased, outcomes, strict=True)
            if outcome.verdict is not Verdict.CONFIRMED
        ]

    def _settle_letters(
        self, batch: Batch, acks: Sequence[Ack], decisions: Sequence[Decision]
    ) -> None:
        view, name = batch.view, batch.view.route.name
        replies = [view.store.ack(some, shunted=True) for some in in_calls(acks)]
        replies += settle_letters(view, batch.token, decisions)
        for reply in replies:
            self._note_settled(view, reply)
        metrics.letters_kept.labels(name).inc(len(decisions))
        if acks:
            log.info("shunted", route=name, count=len(acks))
        kept = [each for each in decisions if isinstance(each, Retry | Burial)]
        if kept and all(group.health.mode == "up" for group in batch.outgoing.groups):
            error = on_one_line(kept[0].error)  # a held target has a line of its own
            log.warning("dead_letters_kept", route=name, count=len(kept), error=error)

    def ack(self, view: ShardView, acks: Sequence[Ack] = (), *, at_once: bool = False) -> None:
        """Ack confirmed envelopes together with buffered acks, or buffer them for the next call."""
        for some in in_calls(self.acks.gather(view, acks, at_once=at_once)):
            self._note_settled(view, view.store.ack(some))

    def ack_waiting(self, view: ShardView) -> None:
        """Send the buffered acks of a shard."""
        try:
            self.ack(view, at_once=True)
        except Exception as error:  # the leases expire; this counts as no failure
            self._outage(view).begin(_said(error))

    def put_back(
        self, batch: Batch, decisions: Sequence[Decision], waiting: Sequence[TargetHealth] = ()
    ) -> None:
        """Settle what a claim brought that is not published now; some wait for held targets."""
        view = batch.view
        try:
            if batch.is_letter:
                replies: Iterable[SettleReply] = settle_letters(view, batch.token, decisions)
            else:
                replies = (reply for _, reply in settle(view, batch.token, decisions))
            for reply in replies:
                self._note_settled(view, reply)
        except Exception as error:  # the leases expire
            self._outage(view).begin(_said(error))
        self._note_aside(batch, waiting)

    def _outage(self, view: ShardView) -> Outage:
        found = self._outages.get(view.node)
        if found is None:
            where = {"node": view.node} if view.node else {}
            outage = Outage("settle_failed", "settle_works", self._monotonic, **where)
            found = self._outages.setdefault(view.node, outage)
        return found

    def _fault(self, view: ShardView) -> Outage:
        """Return the outage of a route whose batches fail by an error of this program."""
        name = view.route.name
        found = self._faults.get(name)
        if found is None:
            fault = Outage("batch_failed", "batch_works", self._monotonic, route=name)
            found = self._faults.setdefault(name, fault)
        return found

    def forget_node(self, node: str) -> None:
        """Forget a node that has none of our shards any more."""
        if outage := self._outages.pop(node, None):
            outage.end()

    def _note_settled(self, view: ShardView, settled: SettleReply) -> None:
        self._outage(view).end()
        view.note_poll(settled.poll)
        if settled.stale and not settled.repeated:
            metrics.leases_lost.labels(view.route.name).inc(len(settled.stale))
            log.warning("lease_lost", route=view.route.name, count=len(settled.stale))

    @staticmethod
    def _note_aside(batch: Batch, waiting: Sequence[TargetHealth]) -> None:
        """Note at targets that envelopes of the shard wait for them, which are set aside by now."""
        for health in waiting:
            batch.lane.note_aside(health, batch.view.store.shard)

    def _trace(
        self, batch: Batch, outcomes: Sequence[Outcome], between_ms: tuple[int, int]
    ) -> None:
        if self._tracing is not None and not batch.is_letter:
            self._tracing.published(batch.view.route, batch.leased, outcomes, between_ms)


def _said(error: Exception) -> str:
    return str(error) if isinstance(error, StoreError) else described(error)


def count_confirmed(batch: Batch, outcomes: Sequence[Outcome], now_ms: int) -> None:
    """Count what a broker confirmed, whatever the store says to the acks that follow."""
    name = batch.view.route.name
    if batch.is_letter:
        metrics.shunted.labels(name).inc(len(acks_of(batch, outcomes)))
    else:
        metrics.observe_confirmed(name, batch.leased, outcomes, now_ms)


def acks_of(batch: Batch, outcomes: Sequence[Outcome]) -> list[Ack]:
    """Return the acks of the envelopes that a broker confirmed."""
    token = batch.token
    acks = [
        Ack(leased.id, token, leased.record.remember_ms, leased.record.content_hash)
        for leased, outcome in zip(batch.leased, outcomes, strict=False)
        if outcome.verdict is Verdict.CONFIRMED
    ]
    damaged = zip(batch.damaged, batch.outcomes_of_damaged(outcomes), strict=False)
    return acks + [
        Ack(each.id, token) for each, outcome in damaged if outcome.verdict is Verdict.CONFIRMED
    ]


def damaged_decisions(batch: Batch, outcomes: Sequence[Outcome]) -> list[Decision]:
    """Decide on unreadable envelopes: they are buried, or kept as dead letters."""
    if not batch.is_letter:
        return [decide_damaged(damaged) for damaged in batch.damaged]
    return [
        decide_damaged_letter(damaged, outcome)
        for damaged, outcome in zip(batch.damaged, batch.outcomes_of_damaged(outcomes), strict=True)
        if outcome.verdict is not Verdict.CONFIRMED
    ]


def report_batch(batch: Batch, decisions: Sequence[Decision]) -> None:
    """Log the retries and burials of a batch."""
    if decisions:
        attempts = {each.id: each.flight.attempt for each in batch.leased}
        report(batch.view, attempts, decisions)
