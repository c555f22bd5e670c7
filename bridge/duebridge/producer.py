"""The producer's side: hand envelopes to the delay store, take them back, ask after them.

It needs the store and the routes of a configuration, and no broker at all.
"""

import time
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, Literal, Self, TypeAlias, Unpack

from duebridge.config.fields import did_you_mean
from duebridge.config.load import load_config, resolved_store_url
from duebridge.config.models import Config, Route
from duebridge.durations import format_instant, format_ms
from duebridge.envelope import Envelope, EnvelopeFields, due_instant
from duebridge.errors import ConfigError, EnvelopeError, shown
from duebridge.limits import check_envelope
from duebridge.receipt import Known, Receipt
from duebridge.store.batching import batches
from duebridge.store.connection import Connection, open_connection
from duebridge.store.delay_store import DelayStore
from duebridge.store.fitness import check_fitness
from duebridge.store.replies import Scheduled
from duebridge.store.route_store import RouteStore, shard_number
from duebridge.telemetry.tracing import find_tracing

REPEAT_FOR_S = 10.0  # how long a call is repeated while the store is away

OnConflict: TypeAlias = Literal["refuse", "replace"]
_REFUSED = ("too_far", "expires_before_due")


class Producer:
    """Schedules envelopes. May be shared by threads; close it, or use it as a context manager."""

    def __init__(
        self, config: Config, connection: Connection, repeat_for_s: float = REPEAT_FOR_S
    ) -> None:
        """Use a store that may hold envelopes; raises `StoreUnfit` or `StoreUnavailable`."""
        check_fitness(connection, config.store.allow_unfit)
        self._config = config
        self._connection = connection
        self._repeat_for_s = repeat_for_s
        self._stores: dict[str, RouteStore] = {}
        self._tracing = find_tracing()

    @classmethod
    def from_config(cls, path: str | Path) -> Self:
        """Return a producer for a configuration file; raises `ConfigError` and `StoreError`."""
        config = load_config(path)
        return cls(config, open_connection(resolved_store_url(config)))

    def schedule(
        self,
        route: str,
        body: bytes | None,
        *,
        on_conflict: OnConflict = "refuse",
        **fields: Unpack[EnvelopeFields],
    ) -> Receipt:
        """Return the receipt of an envelope that is now safe in the store, or says why not.

        Its status is `accepted`; `duplicate` if the id lives with the same content, with the due
        instant it has; `conflict` if the id lives with other content, or `replaced` where
        `on_conflict="replace"`; `in_flight` where it is too late to replace.

        Raises `EnvelopeError` (nothing was stored), `StoreFull`, and `StoreUnavailable`: then
        call again with the same id, which is harmless.
        """
        receipt = self.schedule_many(
            route, [Envelope.new(body, **fields)], on_conflict=on_conflict
        )[0]
        if receipt.status == "refused":
            raise EnvelopeError(receipt.error)
        return receipt

    def schedule_many(
        self, route: str, envelopes: Iterable[Envelope], *, on_conflict: OnConflict = "refuse"
    ) -> list[Receipt]:
        """Return one receipt per envelope, in order, taking them from any iterable in batches.

        An envelope that cannot be stored has status `refused` and says why; all others are stored.
        The receipts are all in memory: for more than some 100,000 there is `schedule_stream`.

        Raises as `schedule` does, `EnvelopeError` apart; what was stored before stays stored.
        """
        return list(self.schedule_stream(route, envelopes, on_conflict=on_conflict))

    def schedule_stream(
        self, route: str, envelopes: Iterable[Envelope], *, on_conflict: OnConflict = "refuse"
    ) -> Iterator[Receipt]:
        """Yield the receipts of `schedule_many` one by one; memory holds one batch, however many.

        A batch is stored when its first receipt is asked for, and nothing before that: the
        receipts must be read to the end.
        """
        store = self._store(route)
        return (
            receipt
            for batch in batches(envelopes, _size_bytes)
            for receipt in self._schedule_traced(store, batch, on_conflict == "replace")
        )

    def _schedule_traced(
        self, store: RouteStore, batch: Sequence[Envelope], replace: bool
    ) -> list[Receipt]:
        if self._tracing is None:
            return self._schedule_batch(store, batch, replace)
        started_ns = time.time_ns()
        receipts = self._schedule_batch(store, batch, replace)
        pairs = list(zip(batch, receipts, strict=True))
        self._tracing.scheduled(pairs, started_ns, time.time_ns())
        return receipts

    def _schedule_batch(
        self, store: RouteStore, batch: Sequence[Envelope], replace: bool
    ) -> list[Receipt]:
        receipts: dict[int, Receipt] = {}
        by_shard: dict[int, list[int]] = {}
        broker_type = self._config.brokers[store.route.target.broker].type
        for place, envelope in enumerate(batch):
            try:
                check_envelope(envelope, store.route, broker_type)
            except EnvelopeError as error:
                receipts[place] = _refused(store.route, envelope, str(error))
            else:
                number = shard_number(envelope.id, len(store.shards))
                by_shard.setdefault(number, []).append(place)
        for number, places in by_shard.items():
            answers = store.shards[number].schedule(
                [batch[place] for place in places],
                max_delay_ms=store.route.max_delay,
                remember_ms=store.route.remember,
                replace=replace,
            )
            for place, answer in zip(places, answers, strict=True):
                receipts[place] = _receipt(store.route, batch[place], answer)
        return [receipts[place] for place in range(len(batch))]

    def cancel(self, route: str, id: str) -> str:  # noqa: A002 - the public name of the field
        """Return `cancelled` only if the envelope will never be delivered.

        `in_flight`: a delivery was started and is not known to have failed; it is removed as soon
        as no worker holds it. `dead`, `unknown` and `recorded` (against a cold row) say so.
        Raises `EnvelopeError` for what UTF-8 cannot carry.
        """
        return self._shard(route, id).cancel(id)

    def reschedule(
        self,
        route: str,
        id: str,  # noqa: A002 - the public name of the field
        *,
        delay: str | timedelta | None = None,
        at: datetime | int | None = None,
    ) -> str:
        """Return `rescheduled` if the envelope now has the new due instant.

        `in_flight`, `dead` and `unknown` changed nothing; `recorded` is noted against a cold row.
        Raises `EnvelopeError` for an instant beyond `max_delay` or after the envelope expires.
        """
        settings = find_route(self._config, route)
        due = due_instant(delay, at)
        answer = self._shard(route, id).reschedule(id, str(due), settings.max_delay)
        if answer.status in _REFUSED:
            raise EnvelopeError(_why(settings, answer))
        return answer.status

    def get(self, route: str, id: str) -> Known | None:  # noqa: A002 - the public name of the field
        """Return what the store knows of an envelope; None where it knows nothing.

        Raises `EnvelopeError` for what UTF-8 cannot carry.
        """
        entry = self._shard(route, id).get(id)
        return None if entry is None else Known.of(route, entry)

    def close(self) -> None:
        """Close the connection to the store."""
        self._connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()

    def _shard(self, route: str, id: str) -> DelayStore:  # noqa: A002 - the field's public name
        store = self._store(route)
        try:
            return store.of(id)
        except UnicodeEncodeError as error:
            expected = "expected text that UTF-8 can carry"
            raise EnvelopeError(f"id: {expected}; got {shown(id)}") from error

    def _store(self, name: str) -> RouteStore:
        if name not in self._stores:
            route = find_route(self._config, name)
            namespace = self._config.store.namespace
            self._stores[name] = RouteStore(self._connection, namespace, route, self._repeat_for_s)
        return self._stores[name]


def find_route(config: Config, name: str) -> Route:
    """Return a route of the configuration; raises `ConfigError`, naming those that there are."""
    if name in config.routes:
        return config.routes[name]
    known = ", ".join(sorted(config.routes)) or "none"
    close = did_you_mean(name, config.routes)
    raise ConfigError(f"route: expected one of the configuration ({known}); got {name!r}{close}")


def _size_bytes(envelope: Envelope) -> int:
    return len(envelope.body or b"") + len(envelope.key or b"") + 256


def _refused(route: Route, envelope: Envelope, error: str) -> Receipt:
    due_at_ms = 0 if envelope.due.relative else envelope.due.ms
    return Receipt(envelope.id, route.name, due_at_ms, "refused", error)


def _receipt(route: Route, envelope: Envelope, answer: Scheduled) -> Receipt:
    if answer.status in _REFUSED:
        return _refused(route, envelope, _why(route, answer))
    return Receipt(envelope.id, route.name, answer.due_at_ms, answer.status)


def _why(route: Route, answer: Scheduled) -> str:
    due_at = format_instant(answer.due_at_ms)
    if answer.status == "too_far":
        limit = format_ms(route.max_delay)
        return f"due: expected within max_delay ({limit}) of now; got {due_at}"
    return f"expires: expected an instant after the envelope is due; it would be due at {due_at}"
