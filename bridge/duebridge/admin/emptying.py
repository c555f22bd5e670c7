"""Whether a store is empty, for whoever leaves it: what is still to go, and what will never go."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import structlog

from duebridge.admin.operator import Operator, RouteStats
from duebridge.config.models import Config
from duebridge.errors import StoreUnavailable
from duebridge.store.connection import Connection

log = structlog.get_logger()


class Left(NamedTuple):
    """Why envelopes of a route stay where they are."""

    route: str
    why: str


class Emptying:
    """Looks at a store that workers empty; `is_empty` once nothing at all is left."""

    def __init__(self, connection: Connection) -> None:
        self.is_empty = False
        self._connection = connection

    def is_over(self, config: Config) -> bool:
        """Return whether no envelope is to go any more, and log what is left then.

        Nobody knows of a store that does not answer. Raises `StoreError`.
        """
        try:
            routes = Operator(config, self._connection).stats()
        except StoreUnavailable:
            return False
        if to_go(config, routes):
            return False
        remains = list(left(config, routes))
        for each in remains:
            log.warning("left_in_store", route=each.route, why=each.why)
        self.is_empty = not remains
        return True


def to_go(config: Config, routes: Sequence[RouteStats]) -> int:
    """Return how many envelopes the workers of this configuration will still take out."""
    return sum(
        each.waiting + (each.dead if _shunts(config, each) else 0)
        for each in routes
        if each.configured
    )


def left(config: Config, routes: Sequence[RouteStats]) -> Iterator[Left]:
    """Yield what no worker of this configuration takes out."""
    for each in routes:
        if not each.configured and each.waiting + each.dead:
            yield Left(each.route, f"not in the configuration: {each.waiting + each.dead}")
        elif each.configured and each.dead and not _shunts(config, each):
            yield Left(each.route, f"dead, and no dead-letter target: {each.dead}")
        if each.cold_left_ms is not None:
            yield Left(each.route, "some may be in its cold tier")


def _shunts(config: Config, route: RouteStats) -> bool:
    return config.routes[route.route].dead_letter is not None
