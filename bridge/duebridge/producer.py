"""The producer: schedules envelopes in the delay store, cancels, reschedules and looks them up.

    fields ─▶ Envelope.new ─▶ RouteScheduler.schedule ─▶ Receipt

It needs the store and the routes of a configuration, and no broker.
"""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any, Literal, Self, TypeAlias, Unpack, get_args
from uuid import UUID

from msgspec import UNSET

from duebridge.cold_rows import ColdRows
from duebridge.config.load import load_config, resolved_store_url
from duebridge.config.models import Config
from duebridge.envelope import BodyGiven, Envelope, EnvelopeFields, checked_id, due_instant
from duebridge.errors import ConfigError, EnvelopeError, StoreError, shown
from duebridge.receipt import CancelAnswer, Known, MoveAnswer, Receipt
from duebridge.scheduling.route_scheduler import (
    RouteScheduler,
    RouteSchedulers,
    due_fault,
    find_route,
    size_bytes,
)
from duebridge.store.batching import Batches
from duebridge.store.caller import while_awaited
from duebridge.store.delay_store import DelayStore
from duebridge.store.server.connection import REPEAT_FOR_S, Connection, open_connection
from duebridge.store.server.fitness import check_fitness
from duebridge.store.wire.transitions import ScheduleMode
from duebridge.telemetry.tracing import find_tracing

OnConflict: TypeAlias = Literal["refuse", "replace"]


class Producer:
    """Schedules envelopes. May be shared by threads, and used on both sides of a fork.

    Close it, or use it as a context manager. While the store is away a call is repeated for 10 s.
    An exception of a signal handler that ends a call does no harm to later ones, but may crash
    hiredis, the client's parser, if it is raised inside it: let handlers set a flag instead.
    """

    def __init__(
        self,
        config: Config | None = None,
        connection: Connection | None = None,
        repeat_for_s: float = REPEAT_FOR_S,
    ) -> None:
        """Use a configuration and an open connection, both needed: see `from_config`.

        Raises `StoreUnfit` or `StoreUnavailable`.
        """
        if not isinstance(config, Config) or connection is None:
            expected = "expected a Config and a Connection"
            raise ConfigError(f"Producer: {expected}; use Producer.from_config(path)")
        check_fitness(connection, config.store.allow_unfit, repeat_for_s, config.needs)
        self._config = config
        self._connection = connection
        self._is_closed = False
        self._routes = RouteSchedulers(config, connection, repeat_for_s, find_tracing())

    @classmethod
    def from_config(cls, path: str | Path) -> Self:
        """Open a producer for a configuration file; raises `ConfigError` and `StoreError`."""
        config = load_config(path)
        read_url = partial(resolved_store_url, config)
        return cls(config, open_connection(read_url(), read_url=read_url))

    def schedule(
        self,
        route: str,
        body: BodyGiven = UNSET,
        *,
        on_conflict: OnConflict = "refuse",
        **fields: Unpack[EnvelopeFields],
    ) -> Receipt:
        """Store an envelope and return its receipt; the fields are those of `Envelope.new`.

        The status is `accepted`; `duplicate` if the id waits with the same content (the receipt has
        its due instant), or was delivered with it and is remembered; `cancelled` or `dead` if it is
        remembered with this content and ended so: nothing was stored; `conflict` if the id waits
        with other content. With `on_conflict="replace"` other content, and any under a remembered
        id, is `replaced`, a new life; `in_flight` where it is too late for that.

        Content is all that was given: body, key, headers in their order, properties, target,
        `delay` or `at`, `expires`, `max_attempts` and `remember`. A repeated call gives all of it
        unchanged: compute `at` once. Other content under an id that is only remembered is
        `accepted`, and delivered too.

        Raises `EnvelopeError` and `UnknownRoute` (nothing was stored), `StoreFull`, and
        `StoreUnavailable`: then call again with the same id, which is harmless; the error has it in
        `ids`. Where the route's durability names replicas that did not confirm in time, it is an
        `Indeterminate`.
        """
        envelope = Envelope.new(body, **fields)
        with _naming(envelope.id):
            scheduler = self._scheduler(route)
            (receipt,) = scheduler.schedule([envelope], mode=_mode(on_conflict))
        if receipt.status == "refused":
            raise EnvelopeError(receipt.error)
        return receipt

    def schedule_many(
        self, route: str, envelopes: Iterable[Envelope], *, on_conflict: OnConflict = "refuse"
    ) -> list[Receipt]:
        """Store envelopes of any iterable, in batches; return one receipt per envelope, in order.

        An envelope that cannot be stored has status `refused` and an error; all others are stored.
        The receipts are all in memory: for more than some 100,000 there is `schedule_stream`.

        Raises as `schedule` does, but `EnvelopeError` only for arguments of another type. What was
        stored before a `StoreError` stays stored: its `receipts` has all answers, its `ids` what
        was read and has none. Call again with `ids` and all that was not read yet.
        """
        receipts: list[Receipt] = []
        with keeping(receipts):
            receipts += self.schedule_stream(route, envelopes, on_conflict=on_conflict)
        return receipts

    def schedule_stream(
        self, route: str, envelopes: Iterable[Envelope], *, on_conflict: OnConflict = "refuse"
    ) -> Iterator[Receipt]:
        """Yield the receipts of `schedule_many` one by one, with one batch in memory.

        A batch is stored when its first receipt is read: read the receipts to the end. A
        `StoreError` has the `receipts` that were not yielded.
        """
        return _stream(self._scheduler(route), envelopes, _mode(on_conflict))

    def cancel(self, route: str, id: str | UUID) -> CancelAnswer:  # noqa: A002
        """Cancel an envelope; `cancelled` only if it will never be delivered.

        `in_flight`: a delivery was started and is not known to have failed; the envelope is removed
        as soon as no worker holds it. `dead`, `unknown` and `recorded` (against a cold row) are the
        other answers; `unknown` too where an earlier call has cancelled it, such as one that ended
        in `StoreUnavailable` or `Indeterminate`. Raises `EnvelopeError` for an id that is not text
        in UTF-8.
        """
        text = checked_id(id)
        with _naming(text):
            return self._shard(route, text).cancel(text)

    def reschedule(
        self,
        route: str,
        id: str | UUID,  # noqa: A002 - the public name of the field
        *,
        delay: str | timedelta | None = None,
        at: datetime | int | None = None,
    ) -> MoveAnswer:
        """Give an envelope another due instant; `rescheduled` if it has it now.

        `in_flight`, `dead` and `unknown` changed nothing; `recorded` is noted against a cold row.
        Raises `EnvelopeError` for an instant beyond `max_delay` or after the envelope expires.
        """
        settings, text = find_route(self._config, route), checked_id(id)
        due = due_instant(delay, at)
        with _naming(text):
            answer = self._shard(route, text).reschedule(text, str(due), settings.max_delay)
        if answer.status == "too_far" or answer.status == "expires_before_due":
            raise EnvelopeError(due_fault(settings, answer))
        return answer.status

    def get(self, route: str, id: str | UUID) -> Known | None:  # noqa: A002
        """Look an envelope up; None for an id that was never stored, or whose envelope has ended.

        Also while its end is remembered. On a route with a cold tier an id that the store does not
        have may be in a file: then its state is `cold`, and the files are read. Raises
        `EnvelopeError` for an id that is not text in UTF-8, and `ConfigError` where files cannot be
        read.
        """
        text = checked_id(id)
        if (entry := self._shard(route, text).get(text)) is not None:
            return Known.of(route, entry)
        return ColdRows(self._config, self._connection, find_route(self._config, route)).get(text)

    def close(self) -> None:
        """Close the connection to the store; later calls raise `StoreError`."""
        self._is_closed = True
        self._connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()

    def _shard(self, route: str, id: str) -> DelayStore:  # noqa: A002 - the field's public name
        return self._scheduler(route).store.of(id)

    def _scheduler(self, name: str) -> RouteScheduler:
        if self._is_closed:
            raise StoreError("the producer is closed; open another by Producer.from_config")
        if type(name) is not str:  # one that is no text at all is refused
            name = find_route(self._config, name).name
        return self._routes[name]


def _stream(
    scheduler: RouteScheduler, envelopes: Iterable[Envelope], mode: ScheduleMode
) -> Iterator[Receipt]:
    check_iterable(envelopes)
    cut: Batches[Envelope] = Batches(checked_size)
    for batch in while_awaited(cut.of(envelopes)):
        with naming_ahead(cut):
            receipts = scheduler.schedule(batch, mode=mode)
        yield from receipts


@contextmanager
def keeping(receipts: list[Receipt]) -> Iterator[None]:
    """Give a `StoreError` these receipts, which came before its own."""
    try:
        yield
    except StoreError as error:
        raise error.about(error.ids, [*receipts, *error.receipts]) from error


@contextmanager
def naming_ahead(cut: Batches[Envelope]) -> Iterator[None]:
    """Name in a `StoreError` what was read beside the batch, too."""
    try:
        yield
    except StoreError as error:
        ids = [*error.ids, *(each.id for each in cut.ahead)]
        raise error.about(ids, error.receipts) from error


@contextmanager
def _naming(envelope_id: str) -> Iterator[None]:
    """Name the id in a `StoreError`, also of the call that opens the route."""
    try:
        yield
    except StoreError as error:
        raise error.about([envelope_id]) from error


def _mode(on_conflict: OnConflict) -> ScheduleMode:
    if on_conflict not in get_args(OnConflict):
        raise EnvelopeError(f"on_conflict: expected refuse or replace; got {shown(on_conflict)}")
    return on_conflict


def check_iterable(envelopes: object) -> None:
    """Raise `EnvelopeError` for anything that gives no envelopes, as for a single one."""
    if not isinstance(envelopes, Iterable):
        name = type(envelopes).__name__
        raise EnvelopeError(f"envelopes: expected an iterable of Envelope; got {name}")


def checked_size(envelope: object) -> int:
    """Estimate the bytes of an envelope in a call; raises `EnvelopeError` for anything else."""
    if not isinstance(envelope, Envelope):
        name = type(envelope).__name__
        raise EnvelopeError(
            f"envelopes: expected Envelope; got {name}; build one with Envelope.new"
        )
    return size_bytes(envelope)
