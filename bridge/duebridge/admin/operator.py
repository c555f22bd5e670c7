"""The operator's side: how full each route is, what is in it, and what becomes of the dead.

It reads the number of shards from the store, so that it also serves routes that have left the
configuration, and opens no route by looking at it.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice

import msgspec

from duebridge.admin.dead import ANY_DEAD, DeadFilter
from duebridge.admin.events import Events
from duebridge.admin.listing import Listing, Place, Position
from duebridge.config.models import Config
from duebridge.errors import ConfigError
from duebridge.receipt import Known, Shown
from duebridge.store.batching import in_calls
from duebridge.store.connection import Connection
from duebridge.store.delay_store import DelayStore
from duebridge.store.journal import Journal
from duebridge.store.keys import Shard
from duebridge.store.registry import Registry
from duebridge.store.replies import Stats
from duebridge.store.route_store import shard_number


class RouteStats(msgspec.Struct, frozen=True, omit_defaults=True):
    """A route's envelopes by state, over all its shards; `ready` includes suspects.

    `oldest_due_age_ms` is how long the oldest undelivered envelope has been due, 0 where none is;
    `held_since_ms` is the epoch ms of the first of the target errors that hold it, 0 for none.
    `cold_left_ms` is how long what is cold can wait for the next hydrate, None without a cold tier.
    `configured` is false where the store has the route and the configuration does not.
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

    @property
    def waiting(self) -> int:
        """How many are still to be delivered."""
        return self.pending + self.ready + self.unack + self.retry


class Settled(msgspec.Struct, frozen=True):
    """What became of one dead envelope: `replayed` or `dropped`, else `in_flight`, `unknown`."""

    id: str
    route: str
    status: str


class Operator:
    """Looks into a store and settles what is dead. All methods raise `StoreError`.

    Those that name a route raise `ConfigError` where neither configuration nor store has it.
    """

    def __init__(self, config: Config, connection: Connection) -> None:
        self._config = config
        self._connection = connection
        self._registry = Registry(connection, config.store.namespace)

    def stats(self, routes: Iterable[str] = ()) -> list[RouteStats]:
        """Return the stats of these routes; of every one, the configuration's first, for none."""
        shards = self._shards()
        names = [self._known(name, shards) for name in routes] or self._names(shards)
        return [self._route_stats(name, shards[name]) for name in names]

    def now_ms(self) -> int:
        """Return the store's time."""
        (any_store,) = self._open("clock", 1)  # a route that need not exist: next only reads
        return any_store.next().now_ms

    def listing(self, route: str, state: str = "") -> Listing:
        """Return the envelopes of a route, to be walked."""
        return Listing(route, self._stores(route), state)

    def events(self, route: str | None = None) -> Events:
        """Return the journals of a route, or of all."""
        shards = self._shards()
        names = self._names(shards) if route is None else [self._known(route, shards)]
        return Events(
            [
                Journal(self._connection, shard)
                for name in names
                for shard in self._shards_of(name, shards[name])
            ]
        )

    def dead(self, route: str, limit: int | None = None) -> Iterator[Known]:
        """Yield at most `limit` dead envelopes, in the order in which they are shunted."""
        return (Known.of(route, entry) for entry, _ in self.dead_places(route, limit=limit))

    def dead_places(
        self,
        route: str,
        wanted: DeadFilter = ANY_DEAD,
        *,
        limit: int | None = None,
        after: Position | None = None,
    ) -> Iterator[Place]:
        """Yield at most `limit` dead envelopes that are wanted, which may be settled meanwhile."""
        places = self.listing(route, "dead").walk(after=after)
        return islice((place for place in places if wanted.has(place.entry)), limit)

    def show(self, route: str, id: str) -> Shown | None:  # noqa: A002 - the public name of the field
        """Return everything that is known of an envelope; None where nothing is."""
        stores = self._stores(route)
        entry = stores[shard_number(id, len(stores))].get(id)
        return None if entry is None else Shown.of(route, entry)

    def replay(self, route: str, ids: Iterable[str], delay_ms: int = 0) -> list[Settled]:
        """Schedule dead envelopes anew, due after a delay; one answer per id, in order."""
        return self._settle(
            route, ids, lambda store, batch: store.replay(batch, [delay_ms] * len(batch))
        )

    def drop(self, route: str, ids: Iterable[str]) -> list[Settled]:
        """Delete dead envelopes for good; one answer per id, in order."""
        return self._settle(route, ids, lambda store, batch: store.drop(batch))

    def _settle(
        self,
        route: str,
        ids: Iterable[str],
        settle: Callable[[DelayStore, Sequence[str]], list[str]],
    ) -> list[Settled]:
        stores = self._stores(route)
        asked = list(dict.fromkeys(ids))  # an id named twice is one wish
        by_shard: dict[int, list[str]] = defaultdict(list)
        for each in asked:
            by_shard[shard_number(each, len(stores))].append(each)
        status: dict[str, str] = {}
        for number, mine in by_shard.items():
            for batch in in_calls(mine):
                status.update(zip(batch, settle(stores[number], batch), strict=True))
        return [Settled(each, route, status[each]) for each in asked]

    def _route_stats(self, name: str, shards: int) -> RouteStats:
        found = [store.stats() for store in self._open(name, shards)]
        return _summed(name, found, configured=name in self._config.routes)

    def _stores(self, route: str) -> list[DelayStore]:
        shards = self._shards()
        return self._open(route, shards[self._known(route, shards)])

    def _known(self, route: str, shards: dict[str, int]) -> str:
        if route not in shards:
            known = ", ".join(sorted(shards)) or "none"
            raise ConfigError(
                f"route: expected one of the configuration or the store ({known}); got {route!r}"
            )
        return route

    def _open(self, route: str, shards: int) -> list[DelayStore]:
        return [DelayStore(self._connection, each) for each in self._shards_of(route, shards)]

    def _shards_of(self, route: str, shards: int) -> list[Shard]:
        namespace = self._config.store.namespace
        return [Shard(namespace, route, number) for number in range(shards)]

    def _names(self, shards: dict[str, int]) -> list[str]:
        absent = [name for name in sorted(shards) if name not in self._config.routes]
        return [*self._config.routes, *absent]

    def _shards(self) -> dict[str, int]:
        """Return each route's number of shards: the store's word, else the configuration's."""
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
        held_since_ms=min((poll.held_since_ms for poll in polls if poll.is_held), default=0),
        shards=len(found),
        configured=configured,
        cold_left_ms=min((poll.cold_left_ms for poll in polls if poll.has_cold), default=None),
    )
