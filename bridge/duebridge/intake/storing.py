"""Carries an intake's requests out in the store, through the schedulers of their routes."""

from collections.abc import Iterator, Sequence

import structlog

from duebridge.config.intakes import Intake
from duebridge.config.models import Config
from duebridge.envelope import Envelope
from duebridge.intake.beside import beside_of, stored_beside
from duebridge.intake.ids import stored_id
from duebridge.intake.refused import reason_of
from duebridge.intake.requests import NOW, Cancel, Refusal, Request, Scheduled
from duebridge.ports.source import Arrival, Place
from duebridge.receipt import Receipt
from duebridge.scheduling import ROW_BYTES, RouteScheduler, size_bytes
from duebridge.store.batching import batches
from duebridge.store.server.connection import Connection
from duebridge.store.wire.transitions import Kept
from duebridge.telemetry import metrics
from duebridge.telemetry.tracing import Tracing

REPEAT_FOR_S = 2.0  # of a call while the store is away; then the intake itself waits
Run = list[Scheduled | Refusal]

_STORED = frozenset({"accepted", "replaced"})
_TAKEN = frozenset({"conflict", "in_flight"})
_EFFECTIVE = frozenset({"cancelled", "in_flight", "recorded"})

log = structlog.get_logger()


def steps_of(requests: Sequence[Request]) -> Iterator[Run | Cancel]:
    """Yield calls of the store: requests in order, but for those of different routes.

    Redelivered messages have calls of their own. A refusal with a place goes along: the store keeps
    the place of what it must judge again.
    """
    found: dict[tuple[str, bool], Run] = {}
    for request in requests:
        if isinstance(request, Cancel):
            yield from _runs(found)
            found = {}
            yield request
        elif isinstance(request, Scheduled) or request.arrival.place is not None:
            kind = request.route, request.arrival.is_redelivered
            found.setdefault(kind, []).append(request)
    yield from _runs(found)


def _runs(found: dict[tuple[str, bool], Run]) -> Iterator[Run]:
    for run in found.values():
        yield from batches(run, _size_bytes)


def _size_bytes(request: Scheduled | Refusal) -> int:
    return size_bytes(request.envelope) if isinstance(request, Scheduled) else ROW_BYTES


class Storeroom:
    """The routes of the store as one intake uses them; a step may be repeated, and stores once."""

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
        self._connection = connection
        self._is_replacing = settings.on_conflict == "replace"
        self._reading = _reading(settings)
        self._tracing = tracing
        self._schedulers: dict[str, RouteScheduler] = {}

    def use(self, config: Config) -> None:
        """Take the routes of another configuration over."""
        old, self._config = self._config, config
        for name in list(self._schedulers):
            if config.routes.get(name) != old.routes[name]:
                del self._schedulers[name]

    def carry_out(self, step: Run | Cancel, *, is_repeated: bool = False) -> list[Refusal]:
        """Carry a step out; return what its route refused. Raises `StoreError`.

        `is_repeated`: it may have been carried out before.
        """
        if isinstance(step, Cancel):
            self._cancel(step)
            return []
        return self._schedule(step, is_repeated or step[0].arrival.is_redelivered)

    def keep(self, refused: Sequence[Kept]) -> None:
        """Keep what was refused as dead envelopes of the intake's route. Raises `StoreError`."""
        if not refused:
            return
        store = self._scheduler(self._route).store
        for shard, some in store.by_shard(refused, lambda each: each.envelope.id):
            for call in batches(some, lambda each: size_bytes(each.envelope)):
                shard.keep(call)
        metrics.intake_letters_kept.labels(self._intake).inc(len(refused))
        error = refused[0].error.replace("\n", ": ", 1)
        log.warning(
            "intake_letters_kept",
            intake=self._intake,
            route=self._route,
            count=len(refused),
            error=error,
        )

    def _cancel(self, cancel: Cancel) -> None:
        shard = self._scheduler(cancel.route).store.of(cancel.id)
        answer = shard.cancel(cancel.id, self._place(cancel.arrival))
        if answer in _EFFECTIVE:
            metrics.intake_cancelled.labels(self._intake).inc()

    def _schedule(self, run: Run, is_repeated: bool) -> list[Refusal]:
        scheduler = self._scheduler(run[0].route)
        refusals = {n: each.text for n, each in enumerate(run) if isinstance(each, Refusal)}
        receipts = scheduler.schedule(
            [self._envelope(each) for each in run],
            replace=self._is_replacing,
            places=(places := self._places(run)),
            refusals=refusals,
            # A message that comes again does not bring back what has ended; a new one may.
            revives=bool(places) or not is_repeated,
            reopens=not (places or is_repeated),
            keeps_answer=not places,
        )
        if all(receipt.status == "accepted" for receipt in receipts):
            metrics.intake_accepted.labels(self._intake).inc(len(run))
            return []
        return self._settle(scheduler, run, receipts, is_repeated)

    def _settle(
        self,
        scheduler: RouteScheduler,
        run: Run,
        receipts: Sequence[Receipt],
        is_repeated: bool,
    ) -> list[Refusal]:
        pairs = list(zip(run, receipts, strict=True))
        taken = [pair for pair in pairs if pair[1].status in _TAKEN]
        refusals = self._store_beside(scheduler, taken, is_repeated) if taken else []
        refusals += [_refusal(each, of.error) for each, of in pairs if of.status == "refused"]
        self._count([of for _, of in pairs if of.status not in _TAKEN])
        return refusals

    def _store_beside(
        self,
        scheduler: RouteScheduler,
        taken: Sequence[tuple[Scheduled | Refusal, Receipt]],
        is_repeated: bool,
    ) -> list[Refusal]:
        """Store under other ids what came under an id that other content has, or is on its way."""
        shards = len(scheduler.store.shards)
        run = [each for each, _ in taken]
        beside = [
            beside_of(each.arrival, self._envelope(each), receipt, shards)
            for each, receipt in taken
        ]
        # What comes later for the key has to reach what is stored beside it.
        besides = [
            receipt.id if self._is_replacing and receipt.status == "in_flight" else ""
            for _, receipt in taken
        ]
        places = self._places(run)
        # Of a key too, a message that comes again does not bring back what has ended.
        reopens = self._is_replacing and not (places or is_repeated)
        receipts = stored_beside(scheduler, beside, places, besides, reopens)
        self._count(receipts)
        return [
            _refusal(each, of.error or f"id: expected a free one; {of.id!r} has other content")
            for each, of in zip(run, receipts, strict=True)
            if of.status in _TAKEN or of.status == "refused"
        ]

    def _envelope(self, request: Scheduled | Refusal) -> Envelope:
        if isinstance(request, Scheduled):
            return request.envelope
        kept_open = request.id or stored_id(request.arrival, replace=self._is_replacing)
        return Envelope(id=kept_open, body=None, due=NOW)

    def _places(self, run: Run) -> Sequence[Place | None]:
        """Return the places of a run's messages, none at all where no message has one."""
        places = [self._place(each.arrival) for each in run]
        return places if any(places) else ()

    def _place(self, arrival: Arrival) -> Place | None:
        """Return a place in the log as this intake reads it: ids of other settings are others."""
        if arrival.place is None or not self._reading:
            return arrival.place
        log, epoch, offset = arrival.place.log, arrival.place.epoch, arrival.place.offset
        return Place(f"{log}#{self._reading}", epoch, offset)

    def _count(self, receipts: Sequence[Receipt]) -> None:
        stored = sum(receipt.status in _STORED for receipt in receipts)
        others = sum(receipt.status in ("refused", *_TAKEN) for receipt in receipts)
        metrics.intake_accepted.labels(self._intake).inc(stored)
        metrics.intake_duplicates.labels(self._intake).inc(len(receipts) - stored - others)

    def _scheduler(self, route: str) -> RouteScheduler:
        if route not in self._schedulers:
            self._schedulers[route] = RouteScheduler.open(
                self._config,
                self._connection,
                route,
                repeat_for_s=REPEAT_FOR_S,
                tracing=self._tracing,
            )
        return self._schedulers[route]


def _reading(intake: Intake) -> str:
    """Return a name of the settings that ids depend on, empty for the usual ones."""
    origin = "origin" if intake.to == "origin" else ""
    return "-".join(filter(None, (origin, intake.on_conflict.removeprefix("refuse"))))


def _refusal(request: Scheduled | Refusal, text: str) -> Refusal:
    if isinstance(request, Refusal):
        return request
    return Refusal(request.arrival, request.route, reason_of(text), text, request.envelope.id)
