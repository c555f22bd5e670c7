"""Removes whole routes from the store, with all their data.

For a route that is retired, or a namespace that is given up. Their envelopes are dropped: nobody
receives them. Their journals go too; who purged which route is journalled beside (`events`).
"""

from collections.abc import Sequence
from typing import Literal, TypeAlias

import msgspec

from duebridge.admin.held import count_serving
from duebridge.admin.operator import Operator
from duebridge.admin.route_stats import RouteStats
from duebridge.config.models import Config
from duebridge.store.keys import Shard
from duebridge.store.registry import Registry
from duebridge.store.server.connection import Connection
from duebridge.store.server.fitness import count_listeners

PurgeStatus: TypeAlias = Literal["in_use", "would_purge", "purged"]


class PurgePlan(msgspec.Struct, frozen=True):
    """A route that a purge would remove, and what goes with it.

    `waiting` and `dead` count envelopes; `workers` listen for the route or said lately that
    they serve it; `has_cold` tells that it ever had envelopes in the cold tier, whose files a purge
    does not reach.
    """

    route: str
    waiting: int
    dead: int
    shards: int
    workers: int
    configured: bool
    has_cold: bool

    @property
    def status(self) -> PurgeStatus:
        """`in_use` while a worker serves the route, else `would_purge`."""
        return "in_use" if self.workers else "would_purge"


def plan_purge(config: Config, connection: Connection, routes: Sequence[str]) -> list[PurgePlan]:
    """Plan the purge of these routes; without names, of every route.

    Raises `ConfigError` for a route that neither configuration nor store has, and `StoreError`.
    """
    operator = Operator(config, connection)
    found, records = operator.stats(dict.fromkeys(routes)), operator.workers() or ()
    shards = [Shard(config.store.namespace, stats.route, 0) for stats in found]
    # A worker whose connection broke listens again within a second or so; its record outlives that.
    return [
        _plan(stats, max(listeners, count_serving(records, stats.route)))
        for stats, listeners in zip(found, count_listeners(connection, shards), strict=True)
    ]


def purge_route(config: Config, connection: Connection, plan: PurgePlan) -> None:
    """Remove a route for good: envelopes, journal, remembered ids and its number of shards.

    The caller has made sure that no worker serves it: one would go on as if it were there.
    """
    registry = Registry(connection, config.store.namespace)
    registry.remove_route(plan.route, plan.shards, plan.waiting + plan.dead)


def _plan(stats: RouteStats, workers: int) -> PurgePlan:
    return PurgePlan(
        route=stats.route,
        waiting=stats.waiting,
        dead=stats.dead,
        shards=stats.shards,
        workers=workers,
        configured=stats.configured,
        has_cold=stats.cold_left_ms is not None,
    )
