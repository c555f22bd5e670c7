"""Removes whole routes from the store, with all that is in them.

It is for a route that is over and for a namespace that is given up. Envelopes that go with it are
dropped on request: nobody will get them, and no journal tells of it.
"""

from collections.abc import Sequence

import msgspec

from duebridge.admin.operator import Operator, RouteStats
from duebridge.config.models import Config
from duebridge.store.connection import Connection
from duebridge.store.fitness import count_listeners
from duebridge.store.keys import Shard
from duebridge.store.registry import Registry


class Condemned(msgspec.Struct, frozen=True):
    """A route that a purge would remove, and what goes with it.

    `waiting` are still to be delivered; so many `workers` serve the route at this moment; it
    `has_cold` if it ever had envelopes in the cold tier, whose files no purge reaches.
    """

    route: str
    waiting: int
    dead: int
    shards: int
    workers: int
    configured: bool
    has_cold: bool


def condemn(config: Config, connection: Connection, routes: Sequence[str]) -> list[Condemned]:
    """Return what a purge of these routes would remove; of all that there are where none is named.

    Raises `ConfigError` where neither configuration nor store has one of them, and `StoreError`.
    """
    found = Operator(config, connection).stats(dict.fromkeys(routes))
    shards = [Shard(config.store.namespace, each.route, 0) for each in found]
    return list(map(_condemned, found, count_listeners(connection, shards)))


def purge(config: Config, connection: Connection, condemned: Condemned) -> None:
    """Remove a route for good: envelopes, journal, remembered ids and its number of shards.

    A worker that still serves it would go on as if it were there: whoever calls has seen to that.
    """
    Registry(connection, config.store.namespace).remove_route(condemned.route, condemned.shards)


def _condemned(stats: RouteStats, workers: int) -> Condemned:
    return Condemned(
        route=stats.route,
        waiting=stats.waiting,
        dead=stats.dead,
        shards=stats.shards,
        workers=workers,
        configured=stats.configured,
        has_cold=stats.cold_left_ms is not None,
    )
