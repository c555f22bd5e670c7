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
from duebridge.config.durability import ReplicaWait, replication_of
from duebridge.config.models import Config
from duebridge.store.keys import Shard
from duebridge.store.registry import Registry
from duebridge.store.server.connection import Connection
from duebridge.store.server.fitness import count_listeners

PurgeStatus: TypeAlias = Literal["in_use", "would_purge", "purged", "already_purged"]


class PurgePlan(msgspec.Struct, frozen=True):
    """A route that a purge would remove, and what goes with it.

    `waiting` and `dead` count envelopes; `workers` listen for the route or said lately that
    they serve it; `has_cold` tells that it ever had envelopes in the cold tier, whose files a purge
    does not reach. `life` is what is bound to go: what begins after it under the name stays.
    """

    route: str
    waiting: int
    dead: int
    shards: int
    workers: int
    configured: bool
    has_cold: bool
    life: str

    @property
    def status(self) -> PurgeStatus:
        """`in_use` while a worker serves the route, else `would_purge`."""
        return "in_use" if self.workers else "would_purge"


def plan_purge(config: Config, connection: Connection, routes: Sequence[str]) -> list[PurgePlan]:
    """Plan the purge of these routes; without names, of every route.

    Raises `ConfigError` for a route that neither configuration nor store has, and `StoreError`.
    """
    operator = Operator(config, connection)
    lives = Registry(connection, config.store.namespace).lives()
    found, records = operator.stats(dict.fromkeys(routes)), operator.workers() or ()
    shards = [Shard(config.store.namespace, stats.route, 0) for stats in found]
    # A worker whose connection broke listens again within a second or so; its record outlives that.
    return [
        _plan(
            stats, max(listeners, count_serving(records, stats.route)), lives.get(stats.route, "")
        )
        for stats, listeners in zip(found, count_listeners(connection, shards), strict=True)
    ]


def purge_route(config: Config, connection: Connection, plan: PurgePlan) -> PurgeStatus:
    """Remove a route for good: envelopes, journal, remembered ids and its number of shards.

    `already_purged` says that the life that was planned for has ended: another purge removed it,
    and what began after that under the route's name is untouched. The caller has made sure that no
    worker serves it: one would go on as if it were there. Raises `Indeterminate` where too few
    replicas confirm it: a promoted one may have the route again, until the purge is repeated.
    """
    registry = Registry(
        connection, config.store.namespace, removal_waits_for=_waits_for(config, plan.route)
    )
    envelopes = plan.waiting + plan.dead
    is_removed = registry.remove_route(plan.route, plan.shards, envelopes, plan.life)
    return "purged" if is_removed else "already_purged"


def _waits_for(config: Config, route: str) -> ReplicaWait | None:
    named = config.routes.get(route)
    return replication_of((named or config.store).durability)


def _plan(stats: RouteStats, workers: int, life: str) -> PurgePlan:
    return PurgePlan(
        route=stats.route,
        waiting=stats.waiting,
        dead=stats.dead,
        shards=stats.shards,
        workers=workers,
        configured=stats.configured,
        has_cold=stats.cold_left_ms is not None,
        life=life,
    )
