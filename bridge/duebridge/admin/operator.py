"""The operator's side of the store: statistics, shards to read, replay and drop of dead envelopes.

The number of shards comes from the store, so that routes which left the configuration are served
too; looking at a route does not register it.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import datetime, timedelta
from functools import partial
from typing import TypeAlias, TypeVar

import msgspec

from duebridge.admin.held import held_of
from duebridge.admin.route_stats import RouteStats, summed
from duebridge.cold_rows import ColdRows
from duebridge.config.durability import replication_of
from duebridge.config.models import Config
from duebridge.envelope import due_instant
from duebridge.errors import ConfigError, StoreUnavailable, UnknownRoute, unknown_name
from duebridge.receipt import EnvelopeDetails, Known
from duebridge.scheduling.route_scheduler import find_route
from duebridge.store.aside import AsideCount
from duebridge.store.batching import CALL_ROWS, answers_of, in_calls
from duebridge.store.delay_store import DelayStore
from duebridge.store.journal import Journal
from duebridge.store.keys import Shard
from duebridge.store.life import RouteLife
from duebridge.store.registry import Registry
from duebridge.store.routing import RouteStore
from duebridge.store.server.connection import Connection
from duebridge.store.wire.replies import ChangeAnswer, DropAnswer, Entry, ReplayAnswer
from duebridge.store.workers import WorkerRecord, Workers

Settled = TypeVar("Settled", ReplayAnswer, DropAnswer)
Told = TypeVar("Told")

NO_ROUTE = "clock"  # need not exist: to poll a shard only reads
MOST_ASIDE_PAGES = 100  # of `CALL_ROWS` retries, to count what a shard has for held targets


class DeadSettlement(msgspec.Struct, frozen=True):
    """The answer for one id: `replayed` or `dropped`; `in_flight`; `unknown` if it is not dead."""

    id: str
    route: str
    status: ReplayAnswer | DropAnswer


class EnvelopeChange(msgspec.Struct, frozen=True):
    """The answer for one id, and the due instant that was asked for, 0 for a cancel.

    `cancelled` or `rescheduled`; `in_flight` (a delivery was started and is not known to have
    failed), `dead`, `unknown`, `too_far` (beyond `max_delay`) and `expires_before_due` changed
    nothing, but that an envelope in flight is cancelled as soon as no worker holds it; `recorded`
    is noted against a cold row.
    """

    id: str
    route: str
    status: ChangeAnswer
    due_at_ms: int = 0


TellSettled: TypeAlias = Callable[[DeadSettlement], None]
TellChanged: TypeAlias = Callable[[EnvelopeChange], None]


def _tell_nobody(_: object) -> None:
    pass


class Operator:
    """Reads a store's routes, and changes and settles envelopes. All methods raise `StoreError`.

    Methods that name a route raise `ConfigError` if neither configuration nor store has it. Those
    that change many envelopes `tell` each answer as soon as it is known, settlements shard by
    shard: an error, or Ctrl-C, leaves nobody in doubt of what was done before it.
    """

    def __init__(self, config: Config, connection: Connection) -> None:
        self._config = config
        self._connection = connection
        self._registry = Registry(connection, config.store.namespace)
        self._lives: dict[tuple[str, int], RouteLife] = {}
        self._workers = Workers(connection, config.store.namespace)

    def route_names(self) -> list[str]:
        """Return the names of every route, configured ones first."""
        return self._names(self._shards())

    def stats(self, routes: Iterable[str] = ()) -> list[RouteStats]:
        """Return the stats of these routes; of every route, configured ones first, by default."""
        shards = self._shards()
        names = [self._known(name, shards) for name in routes] or self._names(shards)
        records = self.workers() or []
        return [self._route_stats(name, shards[name], records) for name in names]

    def workers(self) -> list[WorkerRecord] | None:
        """Return the workers' records; None without the right to read them."""
        return self._workers.read_if_allowed()

    def now_ms(self, *routes: str) -> int:
        """Return the store's time; of a Cluster's nodes, by the first that has these and answers.

        By default those that have a configured route are asked.
        """
        failure = StoreUnavailable()
        for store in self.one_a_node(*routes):
            try:
                return store.next().now_ms
            except StoreUnavailable as error:
                failure = error
        raise failure

    def one_a_node(self, *routes: str) -> list[DelayStore]:
        """Return one shard of each node that has some of these routes; by default configured ones.

        One server is one node. Of a route that is not configured the first shard stands for all.
        """
        configured, namespace = self._config.routes, self._config.store.namespace
        found: dict[str, Shard] = {}
        for name in routes or tuple(configured) or (NO_ROUTE,):
            for number in range(configured[name].shards if name in configured else 1):
                shard = Shard(namespace, name, number)
                found.setdefault(self._connection.node_of(shard.wake), shard)
        return [DelayStore(self._connection, shard) for shard in found.values()]

    def stores(self, route: str) -> list[DelayStore]:
        """Return the shards of a route, by their number."""
        return self._route(route).shards

    def journals(self, route: str | None = None) -> list[Journal]:
        """Return the journals of a route's shards; without a name, of every route."""
        shards = self._shards()
        names = self._names(shards) if route is None else [self._known(route, shards)]
        return [
            Journal(self._connection, store.shard)
            for name in names
            for store in self._open(name, shards[name]).shards
        ]

    def journal(self, route: str, id: str) -> Journal:  # noqa: A002 - the public name of the field
        """Return the journal of an id's shard."""
        return Journal(self._connection, self._route(route).of(id).shard)

    def entry(self, route: str, id: str) -> Entry | None:  # noqa: A002 - the public name of the field
        """Return an envelope as it is stored; None if the store does not have it."""
        return self._route(route).of(id).get(id)

    def entries(self, route: str, ids: Iterable[str]) -> Iterator[Entry]:
        """Yield envelopes as they are stored, but for those that the store does not have."""
        opened = self._route(route)
        found = (opened.of(each).get(each) for each in ids)
        return (entry for entry in found if entry is not None)

    def show(self, route: str, id: str) -> EnvelopeDetails | None:  # noqa: A002 - the public name of the field
        """Return everything known of an envelope; None if the store does not have it."""
        entry = self.entry(route, id)
        return None if entry is None else EnvelopeDetails.of(route, entry)

    def cold(self, route: str, id: str) -> Known | None:  # noqa: A002 - the public name of the field
        """Look an envelope that the store does not have up in the files of the route's cold tier.

        Raises `ConfigError` if they cannot be read.
        """
        if (settings := self._config.routes.get(route)) is None:
            return None
        return ColdRows(self._config, self._connection, settings).get(id)

    def cancel(
        self, route: str, ids: Iterable[str], tell: TellChanged = _tell_nobody
    ) -> list[EnvelopeChange]:
        """Prevent the delivery of envelopes; one answer per id, in order."""
        opened = self._route(route)
        answers = ((each, opened.of(each).cancel(each)) for each in _distinct(ids))
        return _tell_each((EnvelopeChange(each, route, answer) for each, answer in answers), tell)

    def reschedule(
        self,
        route: str,
        ids: Iterable[str],
        *,
        delay: str | timedelta | None = None,
        at: datetime | int | None = None,
        tell: TellChanged = _tell_nobody,
    ) -> list[EnvelopeChange]:
        """Give envelopes another due instant; one answer per id, in order.

        Raises `EnvelopeError` unless exactly one of `delay` and `at` is a due instant.
        """
        due = str(due_instant(delay, at))
        most_ms = self._config.routes.get(route, self._config.defaults).max_delay
        opened = self._route(route)
        answers = (
            (each, opened.of(each).reschedule(each, due, most_ms)) for each in _distinct(ids)
        )
        return _tell_each((EnvelopeChange(each, route, *answer) for each, answer in answers), tell)

    def deliver_now(
        self, route: str, ids: Iterable[str], tell: TellChanged = _tell_nobody
    ) -> list[EnvelopeChange]:
        """Make envelopes due now, whatever their due instant or next try; one answer per id.

        It is a reschedule, and is journalled as one.
        """
        return self.reschedule(route, ids, delay="0ms", tell=tell)

    def replay(
        self,
        route: str,
        ids: Iterable[str],
        delay_ms: int = 0,
        spread_ms: int = 0,
        tell: TellSettled = _tell_nobody,
    ) -> list[DeadSettlement]:
        """Schedule dead envelopes again, due after a delay; one answer per id, in order.

        With `spread_ms` they fall due one after the other, evenly over that time: the n-th of N,
        from 0, at `delay_ms` + `spread_ms` * n / N.
        """
        distinct = _distinct(ids)
        delays = {
            each: delay_ms + spread_ms * n // len(distinct) for n, each in enumerate(distinct)
        }

        def settle(store: DelayStore, some: Sequence[str]) -> list[ReplayAnswer]:
            return store.replay(some, [delays[each] for each in some])

        return self._settle(route, distinct, settle, tell)

    def drop(
        self, route: str, ids: Iterable[str], tell: TellSettled = _tell_nobody
    ) -> list[DeadSettlement]:
        """Delete dead envelopes for good; one answer per id, in order."""
        return self._settle(route, ids, DelayStore.drop, tell)

    def shunt(self, route: str, tell: Callable[[int], None] = _tell_nobody) -> int:
        """Try the dead letters again that their target rejected; return how many.

        `tell` gets the number of each call. Raises `ConfigError` for a route that is not
        configured, or without a dead-letter target.
        """
        named = find_route(self._config, route)
        if named.dead_letter is None:
            raise ConfigError(f"routes.{route}.dead_letter: expected a target; got none")
        target = str(named.dead_letter)
        return sum(_tell_each(self._shunted(route, target), tell))

    def _shunted(self, route: str, target: str) -> Iterator[int]:
        for store in self._route(route).shards:
            moved = store.readdress(target, CALL_ROWS, mode="asked")
            while moved:
                yield moved
                moved = store.readdress(target, CALL_ROWS)

    def _settle(
        self,
        route: str,
        ids: Iterable[str],
        settle: Callable[[DelayStore, Sequence[str]], list[Settled]],
        tell: TellSettled,
    ) -> list[DeadSettlement]:
        distinct = _distinct(ids)
        answers = (
            DeadSettlement(each, route, status)
            for store, shard_ids in self._route(route).by_shard(distinct, str)
            for batch in in_calls(shard_ids)
            for each, status in zip(batch, answers_of(batch, partial(settle, store)), strict=True)
        )
        found = {answer.id: answer for answer in _tell_each(answers, tell)}
        return [found[each] for each in distinct]

    def _route_stats(self, name: str, shards: int, records: list[WorkerRecord]) -> RouteStats:
        stores = self._open(name, shards).shards
        found = [store.stats() for store in stores]
        stats = summed(name, found, configured=name in self._config.routes)
        due = stats.ready + stats.unack + stats.retry
        aside = self._aside(name, stores, records)
        held = held_of(records, name, waiting=due, dead=stats.dead, aside=aside)
        since = min((each.since_ms for each in held if not each.dead_letter), default=0)
        return msgspec.structs.replace(stats, held=tuple(held), held_since_ms=since)

    def _aside(
        self, name: str, stores: Iterable[DelayStore], records: Iterable[WorkerRecord]
    ) -> Counter[str] | None:
        """Count what is set aside by target; None where the route has one target, or none held."""
        named = self._config.routes.get(name)
        is_held = any(name in each.routes for record in records for each in record.held)
        if not is_held or not (named and named.allow_targets):
            return None
        found: Counter[str] = Counter()
        for store in stores:
            count = AsideCount()
            count.go_on(store, MOST_ASIDE_PAGES)
            found.update(count.by_tag)
        return found

    def _known(self, route: str, shards: dict[str, int]) -> str:
        if route not in shards:
            fault = unknown_name("one of the configuration or the store", route, shards)
            raise UnknownRoute(f"route: {fault}")
        return route

    def _route(self, route: str) -> RouteStore:
        shards = self._shards()
        return self._open(route, shards[self._known(route, shards)])

    def _open(self, route: str, shards: int) -> RouteStore:
        named, store = self._config.routes.get(route), self._config.store
        life = RouteLife(self._registry, route, shards, registers=named is not None)
        life = self._lives.setdefault((route, shards), life)
        waits_for = replication_of(store.durability if named is None else named.durability)
        return RouteStore(
            self._connection,
            store.namespace,
            route,
            shards,
            cold_tier_ms=named.max_delay if named and named.cold_tier else 0,
            waits_for=waits_for,
            life=life,
        )

    def _names(self, shards: dict[str, int]) -> list[str]:
        absent = [name for name in sorted(shards) if name not in self._config.routes]
        return [*self._config.routes, *absent]

    def _shards(self) -> dict[str, int]:
        """Return each route's number of shards: the store's if registered, else the configured."""
        configured = {name: route.shards for name, route in self._config.routes.items()}
        return {**configured, **self._registry.shards()}


def _tell_each(answers: Iterator[Told], tell: Callable[[Told], None]) -> list[Told]:
    """Tell each answer as soon as it is there; return all."""
    found: list[Told] = []
    for answer in answers:
        tell(answer)
        found.append(answer)
    return found


def _distinct(ids: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(ids))
