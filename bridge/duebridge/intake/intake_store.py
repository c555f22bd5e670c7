"""Carries out an intake's requests in the store, through the schedulers of their routes."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import structlog

from duebridge.config.intakes import IntakeSettings
from duebridge.config.models import Config
from duebridge.envelope import Envelope
from duebridge.errors import on_one_line
from duebridge.intake.alternate_id import find_taken, store_alternates, under_alternate_id
from duebridge.intake.ids import may_be_another, stored_id
from duebridge.intake.refused import reason_of
from duebridge.intake.requests import NOW, CancelRequest, RefusedMessage, Request, ScheduleRequest
from duebridge.ports.source import Arrival, LogPosition
from duebridge.receipt import Receipt
from duebridge.scheduling.limits import RouteLimits
from duebridge.scheduling.route_scheduler import (
    ROW_BYTES,
    PreparedBatch,
    RouteScheduler,
    RouteSchedulers,
    find_route,
    prepare_batch,
    size_bytes,
)
from duebridge.store.batching import batches
from duebridge.store.server.connection import Connection
from duebridge.store.wire.transitions import KeptMessage, ScheduleMode
from duebridge.store.workers import MOST_ERROR
from duebridge.telemetry import metrics
from duebridge.telemetry.tracing import Tracing

REPEAT_FOR_S = 2.0  # of a call while the store is away; then the intake itself waits
Run = list[ScheduleRequest | RefusedMessage]

_STORED = frozenset({"accepted", "replaced"})
_TAKEN = frozenset({"conflict", "in_flight"})
_EFFECTIVE = frozenset({"cancelled", "in_flight", "recorded"})

log = structlog.get_logger()


class ScheduleCall(NamedTuple):
    """A call that schedules: requests of one route, and their envelopes as the store takes them."""

    run: Run
    prepared: PreparedBatch


Call = ScheduleCall | CancelRequest


def runs_of(requests: Sequence[Request], *, replace: bool) -> Iterator[Run | CancelRequest]:
    """Yield the requests of each call: in order, but for those of different routes.

    What has a place in a log stays in the log's order: a place behind one that the store has counts
    as stored. Of messages without a place, those that revive no ended envelope have calls of their
    own. A refusal with a place goes along: the store keeps the place of what it must judge again.
    """
    found: dict[tuple[str, bool], Run] = {}
    for request in requests:
        if isinstance(request, CancelRequest):
            yield from _runs(found)
            found = {}
            yield request
        elif isinstance(request, ScheduleRequest) or request.arrival.place is not None:
            kind = request.route, may_be_another(request.arrival, replace=replace)
            found.setdefault(kind, []).append(request)
    yield from _runs(found)


def _runs(found: dict[tuple[str, bool], Run]) -> Iterator[Run]:
    for run in found.values():
        yield from batches(run, _size_bytes)


def _size_bytes(request: ScheduleRequest | RefusedMessage) -> int:
    return size_bytes(request.envelope) if isinstance(request, ScheduleRequest) else ROW_BYTES


class IntakeStore:
    """Carries out an intake's schedule and cancel requests; idempotent."""

    def __init__(
        self,
        intake: str,
        config: Config,
        connection: Connection,
        tracing: Tracing | None = None,
    ) -> None:
        """Store for the intake of this name, whose settings are fixed at the start."""
        settings = config.intakes[intake]
        self._intake = intake
        self._route = settings.route
        self._config = config
        self._is_replacing = settings.on_conflict == "replace"
        self._reading = _reading(settings)
        self._remember_ms = settings.remember
        self._limits: dict[str, RouteLimits] = {}
        self._schedulers = RouteSchedulers(config, connection, REPEAT_FOR_S, tracing)

    def use(self, config: Config) -> None:
        """Apply the routes of another configuration."""
        self._config = config
        self._limits.clear()
        self._schedulers.use(config)

    def calls(self, requests: Sequence[Request]) -> Iterator[Call]:
        """Yield the calls that carry requests out, prepared; asks no store."""
        for run in runs_of(requests, replace=self._is_replacing):
            yield run if isinstance(run, CancelRequest) else ScheduleCall(run, self._prepared(run))

    def carry_out(self, call: Call, *, is_repeated: bool = False) -> list[RefusedMessage]:
        """Carry out a call; return the messages that its route refused. Raises `StoreError`.

        `is_repeated`: an earlier attempt may have been carried out.
        """
        if isinstance(call, CancelRequest):
            self._cancel(call)
            return []
        is_new = may_be_another(call.run[0].arrival, replace=self._is_replacing)
        return self._schedule(call, is_repeated or not is_new)

    def keep(self, refused: Sequence[KeptMessage]) -> None:
        """Store refused messages as dead envelopes of the intake's route. Raises `StoreError`."""
        if not refused:
            return
        store = self._schedulers[self._route].store
        for shard, some in store.by_shard(refused, lambda each: each.envelope.id):
            for call in batches(some, lambda each: size_bytes(each.envelope)):
                shard.keep(call)
        metrics.intake_letters_kept.labels(self._intake).inc(len(refused))
        error = on_one_line(refused[0].error[:MOST_ERROR])
        log.warning(
            "intake_letters_kept",
            intake=self._intake,
            route=self._route,
            count=len(refused),
            error=error,
        )

    def _cancel(self, cancel: CancelRequest) -> None:
        shard = self._schedulers[cancel.route].store.of(cancel.id)
        answer = shard.cancel(cancel.id, self._place(cancel.arrival))
        if answer in _EFFECTIVE:
            metrics.intake_cancelled.labels(self._intake).inc()

    def _prepared(self, run: Run) -> PreparedBatch:
        name = run[0].route
        if name not in self._limits:
            self._limits[name] = RouteLimits.of(self._config, find_route(self._config, name))
        refusals = {n: each.text for n, each in enumerate(run) if isinstance(each, RefusedMessage)}
        envelopes, least_ms = [self._envelope(each) for each in run], self._least_ms(run)
        return prepare_batch(self._limits[name], envelopes, refusals, least_ms=least_ms)

    def _least_ms(self, run: Run) -> int:
        """Return how long ids are remembered: a place in a log tells of redelivery without that."""
        has_places = all(each.arrival.place is not None for each in run)
        return 0 if has_places else self._remember_ms

    def _schedule(self, call: ScheduleCall, is_repeated: bool) -> list[RefusedMessage]:
        run = call.run
        scheduler, places = self._schedulers[run[0].route], self._places(run)
        receipts = scheduler.store_batch(
            self._not_taken(scheduler, call) if is_repeated else call.prepared,
            mode=self._mode(places, is_repeated),
            places=places,
            keeps_answer=not places,
        )
        if all(receipt.status == "accepted" for receipt in receipts):
            metrics.intake_accepted.labels(self._intake).inc(len(run))
            return []
        return self._settle(scheduler, run, receipts, is_repeated)

    def _not_taken(self, scheduler: RouteScheduler, call: ScheduleCall) -> PreparedBatch:
        """Return what of a call may be new: its id may belong to another message by now.

        A place and an id made of an offset tell that themselves; where messages replace each other,
        a redelivery after a fault may undo a newer one.
        """
        run, prepared = call.run, call.prepared
        first = run[0].arrival
        if first.place is not None or first.is_id_unique or self._is_replacing:
            return prepared
        taken = find_taken(scheduler.store, prepared, [self._envelope(each) for each in run])
        known = {n: Receipt(prepared.envelopes[n].id, run[n].route, 0, "duplicate") for n in taken}
        return prepared._replace(refused=prepared.refused | known)

    def _mode(self, places: Sequence[LogPosition | None], is_repeated: bool) -> ScheduleMode:
        """Return the mode of a run: what may be redelivered revives no ended envelope."""
        if self._is_replacing:
            return "replace" if places or not is_repeated else "replace_living"
        return "refuse" if places or is_repeated else "reopen"

    def _settle(
        self,
        scheduler: RouteScheduler,
        run: Run,
        receipts: Sequence[Receipt],
        is_repeated: bool,
    ) -> list[RefusedMessage]:
        pairs = list(zip(run, receipts, strict=True))
        taken = [pair for pair in pairs if pair[1].status in _TAKEN]
        refusals = self._store_alternates(scheduler, taken, is_repeated) if taken else []
        refusals += [
            _refusal(each, receipt.error) for each, receipt in pairs if receipt.status == "refused"
        ]
        self._count([receipt for _, receipt in pairs if receipt.status not in _TAKEN])
        return refusals

    def _store_alternates(
        self,
        scheduler: RouteScheduler,
        taken: Sequence[tuple[ScheduleRequest | RefusedMessage, Receipt]],
        is_repeated: bool,
    ) -> list[RefusedMessage]:
        """Store messages whose ids are taken by other content, or in flight, under other ids."""
        shards = len(scheduler.store.shards)
        run = [each for each, _ in taken]
        alternates = [
            under_alternate_id(each.arrival, self._envelope(each), receipt, shards)
            for each, receipt in taken
        ]
        # A later message of the key must find the envelope under its alternate id.
        primary_ids = [
            receipt.id if self._is_replacing and receipt.status == "in_flight" else ""
            for _, receipt in taken
        ]
        places = self._places(run)
        # A redelivered message revives no ended envelope, even where the id is a key.
        mode: ScheduleMode = "refuse" if places or is_repeated else "reopen"
        least_ms = self._least_ms(run)
        receipts = store_alternates(scheduler, alternates, places, primary_ids, mode, least_ms)
        self._count(receipts)
        return [
            _refusal(each, receipt.error or _id_fault(receipt))
            for each, receipt in zip(run, receipts, strict=True)
            if receipt.status in _TAKEN or receipt.status == "refused"
        ]

    def _envelope(self, request: ScheduleRequest | RefusedMessage) -> Envelope:
        if isinstance(request, ScheduleRequest):
            return request.envelope
        placeholder_id = request.id or stored_id(request.arrival, replace=self._is_replacing)
        return Envelope(id=placeholder_id, body=None, due=NOW)

    def _places(self, run: Run) -> Sequence[LogPosition | None]:
        """Return the places of a run's messages, none at all where no message has one."""
        places = [self._place(each.arrival) for each in run]
        return places if any(places) else ()

    def _place(self, arrival: Arrival) -> LogPosition | None:
        """Return a place in the log as this intake reads it: ids of other settings are others."""
        if arrival.place is None or not self._reading:
            return arrival.place
        log, epoch, offset = arrival.place.log, arrival.place.epoch, arrival.place.offset
        return LogPosition(f"{log}#{self._reading}", epoch, offset)

    def _count(self, receipts: Sequence[Receipt]) -> None:
        stored = sum(receipt.status in _STORED for receipt in receipts)
        others = sum(receipt.status in ("refused", *_TAKEN) for receipt in receipts)
        metrics.intake_accepted.labels(self._intake).inc(stored)
        metrics.intake_duplicates.labels(self._intake).inc(len(receipts) - stored - others)


def _reading(intake: IntakeSettings) -> str:
    """Return a name of the settings that ids depend on, empty for the usual ones."""
    origin = "origin" if intake.to == "origin" else ""
    return "-".join(filter(None, (origin, intake.on_conflict.removeprefix("refuse"))))


def _id_fault(receipt: Receipt) -> str:
    return f"id: expected a free one; {receipt.id!r} has other content"


def _refusal(request: ScheduleRequest | RefusedMessage, text: str) -> RefusedMessage:
    if isinstance(request, RefusedMessage):
        return request
    return RefusedMessage(
        request.arrival, request.route, reason_of(text), text, request.envelope.id
    )
