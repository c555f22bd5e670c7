"""Schedules envelopes of one route: the engine behind the producer and the intakes.

envelopes ─▶ prepare_batch: within the route's limits? ─▶ store_batch: split by shard
          ─▶ DelayStore.schedule ─▶ receipts
"""

import time
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

from duebridge.config.models import Config, Route
from duebridge.durations import format_instant, format_ms
from duebridge.envelope import Envelope
from duebridge.errors import (
    EnvelopeError,
    StoreError,
    StoreUnavailable,
    UnknownRoute,
    shown,
    unknown_name,
)
from duebridge.ports.source import LogPosition
from duebridge.receipt import Receipt
from duebridge.scheduling.limits import RouteLimits, with_whole_target
from duebridge.sizes import header_bytes
from duebridge.store.caller import while_awaited
from duebridge.store.routing import RouteStore
from duebridge.store.server.connection import Connection
from duebridge.store.wire.log_positions import refused_row
from duebridge.store.wire.packed_row import PackedRow, pack_row
from duebridge.store.wire.replies import RescheduleReply, ScheduleReply
from duebridge.store.wire.transitions import ScheduleMode
from duebridge.telemetry.tracing import Tracing

NONE: Mapping[int, str] = MappingProxyType({})
ROW_BYTES = 256  # of an envelope beside its body, key and headers, some


class PreparedBatch(NamedTuple):
    """Envelopes as the store takes them; `refused` has the receipts, by number, of some."""

    envelopes: list[Envelope]
    rows: list[PackedRow]
    refused: dict[int, Receipt]


def prepare_batch(
    limits: RouteLimits,
    envelopes: Sequence[Envelope],
    refusals: Mapping[int, str] = NONE,
    *,
    least_ms: int = 0,
) -> PreparedBatch:
    """Check and pack envelopes of a route; asks no store.

    `refusals` are errors of envelopes that the caller refuses, by number. Ids are remembered for
    `least_ms` at least, which is no part of their content.
    """
    route = limits.route
    whole = [with_whole_target(envelope, route) for envelope in envelopes]
    rows: list[PackedRow] = []
    refused: dict[int, Receipt] = {}
    for number, envelope in enumerate(whole):
        try:
            if number in refusals:
                raise EnvelopeError(refusals[number])
            limits.check(envelope)
            rows.append(pack_row(envelope, route.remember, least_ms))
        except EnvelopeError as error:
            rows.append(refused_row(envelope.id))
            refused[number] = _refused(route, envelope, str(error))
    return PreparedBatch(whole, rows, refused)


class RouteScheduler:
    """Schedules the envelopes of one route."""

    def __init__(self, limits: RouteLimits, store: RouteStore, tracing: Tracing | None) -> None:
        self.store = store
        self._limits = limits
        self._route = limits.route
        self._tracing = tracing

    def schedule(
        self,
        batch: list[Envelope],
        *,
        mode: ScheduleMode = "refuse",
        places: Sequence[LogPosition | None] = (),
        primary_ids: Sequence[str] = (),
        least_ms: int = 0,
    ) -> list[Receipt]:
        """Check a batch, store it shard by shard, and return its receipts in order.

        `places` are the messages' log positions, one per envelope, or none at all: a message at or
        before a position that its shard has stored is a `duplicate`. `mode` and `primary_ids` are
        `DelayStore.schedule`'s, `least_ms` is `prepare_batch`'s.
        Raises `StoreError`, with the ids without an answer and the receipts of the others.
        """
        prepared = prepare_batch(self._limits, batch, least_ms=least_ms)
        return self.store_batch(prepared, mode=mode, places=places, primary_ids=primary_ids)

    def store_batch(
        self,
        prepared: PreparedBatch,
        *,
        mode: ScheduleMode = "refuse",
        places: Sequence[LogPosition | None] = (),
        primary_ids: Sequence[str] = (),
        keeps_answer: bool = True,
    ) -> list[Receipt]:
        """Store a prepared batch and return its receipts in order, as `schedule` does."""
        started_ns = time.time_ns()
        batch, receipts = prepared.envelopes, dict(prepared.refused)
        try:
            self._store(prepared, receipts, mode, places, primary_ids, keeps_answer=keeps_answer)
        except StoreError as error:
            left = [each.id for number, each in enumerate(batch) if number not in receipts]
            answered = [receipts[number] for number in sorted(receipts)]
            raise error.about(left, answered) from error
        finally:
            if self._tracing is not None:
                pairs = [(each, receipts.get(number)) for number, each in enumerate(batch)]
                self._tracing.scheduled(self._route.name, pairs, started_ns, time.time_ns())
        return [receipts[number] for number in range(len(batch))]

    def _store(
        self,
        prepared: PreparedBatch,
        receipts: dict[int, Receipt],
        mode: ScheduleMode,
        places: Sequence[LogPosition | None],
        primary_ids: Sequence[str],
        *,
        keeps_answer: bool,
    ) -> None:
        """Store those that have no receipt yet, shard by shard, and enter their receipts.

        A node of a Cluster that is away keeps nothing from the others, and is the only one that is
        waited for: they come first where that is known before. Raises its error at the end.
        What is refused goes along with its place: else the shard's mark would pass it.
        """
        batch, rows, refused = prepared
        calls = [n for n in range(len(batch)) if n not in refused or (places and places[n])]
        by_shard = self.store.by_shard(calls, lambda number: batch[number].id)
        failed: dict[str, StoreUnavailable] = {}  # by node
        for shard, numbers in while_awaited(sorted(by_shard, key=lambda pair: pair[0].is_away)):
            if (node := shard.node) in failed:
                continue
            try:
                answers = shard.schedule(
                    [rows[n] for n in numbers],
                    max_delay_ms=self._route.max_delay,
                    mode=mode,
                    keeps_answer=keeps_answer,
                    places=[places[n] for n in numbers] if places else (),
                    primary_ids=[primary_ids[n] for n in numbers] if primary_ids else (),
                    is_repeated=not failed,
                )
            except StoreUnavailable as error:
                failed[node] = error
                continue
            for number, answer in zip(numbers, answers, strict=True):
                if number not in refused or answer.status == "duplicate":
                    receipts[number] = _receipt(self._route, batch[number], answer)
        for failure in failed.values():
            raise failure


class RouteSchedulers(dict[str, RouteScheduler]):
    """The schedulers of a configuration's routes, each opened at its first use and kept.

    Opening raises `ConfigError` and `StoreError`.
    """

    def __init__(
        self,
        config: Config,
        connection: Connection,
        repeat_for_s: float,
        tracing: Tracing | None = None,
    ) -> None:
        super().__init__()
        self._config = config
        self._connection = connection
        self._repeat_for_s = repeat_for_s
        self._tracing = tracing

    def __missing__(self, name: str) -> RouteScheduler:
        config = self._config
        route = find_route(config, name)
        store = RouteStore.open(
            self._connection, config.store.namespace, route, repeat_for_s=self._repeat_for_s
        )
        self[name] = RouteScheduler(RouteLimits.of(config, route), store, self._tracing)
        return self[name]

    def use(self, config: Config) -> None:
        """Apply the routes of another configuration; those that differ are opened anew."""
        old, self._config = self._config, config
        for name in list(self):
            if config.routes.get(name) != old.routes[name]:
                del self[name]


def find_route(config: Config, name: str) -> Route:
    """Return a route of the configuration; raises `UnknownRoute`, which names the known ones."""
    if not isinstance(name, str):
        raise UnknownRoute(f"route: expected its name; got {shown(name)}")
    if name in config.routes:
        return config.routes[name]
    fault = unknown_name("one of the configuration", name, config.routes)
    raise UnknownRoute(f"route: {fault}")


def size_bytes(envelope: Envelope) -> int:
    """Estimate the bytes that an envelope takes in a schedule call."""
    content = len(envelope.body or b"") + len(envelope.key or b"")
    return content + header_bytes(envelope.headers) + ROW_BYTES


def _refused(route: Route, envelope: Envelope, error: str) -> Receipt:
    due_at_ms = 0 if envelope.due.relative else envelope.due.ms
    return Receipt(envelope.id, route.name, due_at_ms, "refused", error)


def _receipt(route: Route, envelope: Envelope, answer: ScheduleReply) -> Receipt:
    match answer.status:
        case "too_far" | "expires_before_due":
            return _refused(route, envelope, due_fault(route, answer))
        case status:
            return Receipt(envelope.id, route.name, answer.due_at_ms, status)


def due_fault(route: Route, answer: ScheduleReply | RescheduleReply) -> str:
    """Return why the store refused a due instant: beyond `max_delay`, or after it expires."""
    due_at = format_instant(answer.due_at_ms)
    if answer.status == "too_far":
        limit = format_ms(route.max_delay)
        return f"due: expected within max_delay ({limit}) of now; got {due_at}"
    return f"expires: expected an instant after the envelope is due; it would be due at {due_at}"
