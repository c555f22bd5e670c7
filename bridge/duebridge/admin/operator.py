"""The operator's side of the store: statistics, shards to read, replay and drop of dead envelopes.

The number of shards comes from the store, so that routes which left the configuration are served
too; looking at a route does not register it.
"""

from collections.abc import Callable, Iterable, Sequence

import msgspec

from duebridge.admin.held import HeldStats, held_of
from duebridge.config.durability import replication_of
from duebridge.config.models import Config
from duebridge.errors import ConfigError
from duebridge.receipt import Shown
from duebridge.store.batching import CALL_ROWS, in_calls
from duebridge.store.delay_store import DelayStore
from duebridge.store.journal import Journal
from duebridge.store.life import RouteLife
from duebridge.store.routes import Registry, RouteStore
from duebridge.store.server.connection import Connection
from duebridge.store.wire.poll import Stats
from duebridge.store.wire.replies import Entry
from duebridge.store.workers import WorkerRecord, Workers


class RouteStats(msgspec.Struct, frozen=True, omit_defaults=True):
    """A route's envelopes by state, over all its shards; `ready` includes suspects.

    `oldest_due_age_ms` is how long the oldest undelivered envelope has been due, 0 if none is.
    `held` are its failing targets, as the workers say; `held_since_ms` is the epoch ms of the first
    failure of those that are no dead-letter targets, 0 without one. `cold_left_ms` is how long cold
    envelopes can wait for the next hydrate, None without a cold tier. `configured` is false if only
    the store has the route. `rejected` are the dead whose dead-letter target rejects them for good.
    """

    route: str
    pending: int
    ready: int
    unack: int
    retry: int
    dead: int
    oldest_due_age_ms: int
    held_since_ms: int
    shards: int
    configured: bool = True
    cold_left_ms: int | None = None
    held: tuple[HeldStats, ...] = ()
    rejected: int = 0

    @property
    def waiting(self) -> int:
        """The number of envelopes still to be delivered."""
        return self.pending + self.ready + self.unack + self.retry


class DeadSettlement(msgspec.Struct, frozen=True):
    """The answer for one id: `replayed` or `dropped`; `in_flight`; `unknown` if it is not dead."""

    id: str
    route: str
    status: str


class Operator:
    """Reads a store's routes and settles dead envelopes. All methods raise `StoreError`.

    Methods that name a route raise `ConfigError` if neither configuration nor store has it.
    """

    def __init__(self, config: Config, connection: Connection) -> None:
        self._config = config
        self._connection = connection
        self._registry = Registry(connection, config.store.namespace)
        self._lives: dict[tuple[str, int], RouteLife] = {}
        self._workers = Workers(connection, config.store.namespace)

    def stats(self, routes: Iterable[str] = ()) -> list[RouteStats]:
        """Return the stats of these routes; of every route, configured ones first, by default."""
        shards = self._shards()
        names = [self._known(name, shards) for name in routes] or self._names(shards)
        records = self.workers() or []
        return [self._route_stats(name, shards[name], records) for name in names]

    def workers(self) -> list[WorkerRecord] | None:
        """Return what the workers say of themselves; None without the right to read it."""
        return self._workers.read_if_allowed()

    def now_ms(self) -> int:
        """Return the store's time."""
        (store,) = self._open("clock", 1).shards  # a route that need not exist: next only reads
        return store.next().now_ms

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

    def show(self, route: str, id: str) -> Shown | None:  # noqa: A002 - the public name of the field
        """Return everything known of an envelope; None if the store does not have it."""
        entry = self.entry(route, id)
        return None if entry is None else Shown.of(route, entry)

    def replay(self, route: str, ids: Iterable[str], delay_ms: int = 0) -> list[DeadSettlement]:
        """Schedule dead envelopes again, due after a delay; one answer per id, in order."""
        return self._settle(
            route, ids, lambda store, batch: store.replay(batch, [delay_ms] * len(batch))
        )

    def drop(self, route: str, ids: Iterable[str]) -> list[DeadSettlement]:
        """Delete dead envelopes for good; one answer per id, in order."""
        return self._settle(route, ids, lambda store, batch: store.drop(batch))

    def shunt(self, route: str) -> int:
        """Try the dead letters again that their target rejected; return how many.

        Raises `ConfigError` for a route without a dead-letter target.
        """
        named = self._config.routes.get(route)
        if named is None or named.dead_letter is None:
            raise ConfigError(f"routes.{route}.dead_letter: expected a target; got none")
        target = str(named.dead_letter)
        count = 0
        for store in self._route(route).shards:
            moved = store.readdress(target, CALL_ROWS, is_asked=True)
            while moved:
                count += moved
                moved = store.readdress(target, CALL_ROWS)
        return count

    def _settle(
        self,
        route: str,
        ids: Iterable[str],
        settle: Callable[[DelayStore, Sequence[str]], Sequence[str]],
    ) -> list[DeadSettlement]:
        distinct = list(dict.fromkeys(ids))
        status: dict[str, str] = {}
        for store, shard_ids in self._route(route).by_shard(distinct, str):
            for batch in in_calls(shard_ids):
                status.update(zip(batch, settle(store, batch), strict=True))
        return [DeadSettlement(one_id, route, status[one_id]) for one_id in distinct]

    def _route_stats(self, name: str, shards: int, records: list[WorkerRecord]) -> RouteStats:
        found = [store.stats() for store in self._open(name, shards).shards]
        stats = _summed(name, found, configured=name in self._config.routes)
        due = stats.ready + stats.unack + stats.retry
        held = held_of(records, name, waiting=due, dead=stats.dead)
        since = min((each.since_ms for each in held if not each.dead_letter), default=0)
        return msgspec.structs.replace(stats, held=tuple(held), held_since_ms=since)

    def _known(self, route: str, shards: dict[str, int]) -> str:
        if route not in shards:
            known = ", ".join(sorted(shards)) or "none"
            raise ConfigError(
                f"route: expected one of the configuration or the store ({known}); got {route!r}"
            )
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
            self._connection, store.namespace, route, shards, waits_for=waits_for, life=life
        )

    def _names(self, shards: dict[str, int]) -> list[str]:
        absent = [name for name in sorted(shards) if name not in self._config.routes]
        return [*self._config.routes, *absent]

    def _shards(self) -> dict[str, int]:
        """Return each route's number of shards: the store's if registered, else the configured."""
        configured = {name: route.shards for name, route in self._config.routes.items()}
        registered = {name: route.shards for name, route in self._registry.routes().items()}
        return {**configured, **registered}


def _summed(name: str, found: list[Stats], *, configured: bool) -> RouteStats:
    polls = [stats.poll for stats in found]
    return RouteStats(
        route=name,
        pending=sum(poll.pending for poll in polls),
        ready=sum(poll.ready + poll.suspect for poll in polls),
        unack=sum(poll.unack for poll in polls),
        retry=sum(poll.retry for poll in polls),
        dead=sum(poll.dead for poll in polls),
        oldest_due_age_ms=max(stats.oldest_due_age_ms for stats in found),
        held_since_ms=0,
        shards=len(found),
        configured=configured,
        cold_left_ms=min((poll.cold_left_ms for poll in polls if poll.has_cold), default=None),
        rejected=sum(stats.rejected for stats in found),
    )
