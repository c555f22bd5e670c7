"""Reports when a store being drained is empty, and what no worker will take out of it."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import structlog

from duebridge.admin.operator import Operator
from duebridge.admin.route_stats import RouteStats
from duebridge.config.models import Config
from duebridge.errors import StoreUnavailable
from duebridge.store.server.connection import Connection

log = structlog.get_logger()


class Leftover(NamedTuple):
    """A route whose envelopes stay in the store, and why."""

    route: str
    why: str


class DrainCheck:
    """Reports when a store being drained is empty; `is_empty` once nothing at all is left."""

    def __init__(self, connection: Connection) -> None:
        self.is_empty = False
        self._connection = connection
        self._logged: list[Leftover] = []

    def is_complete(self, config: Config) -> bool:
        """Return whether the workers have nothing left to take out; then log the leftovers.

        False while the store is unavailable. Raises `StoreError`.
        """
        self.is_empty = False
        try:
            routes = Operator(config, self._connection).stats()
        except StoreUnavailable:
            return False
        if count_drainable(config, routes):
            return False
        found = list(leftovers(config, routes))
        self._log_new(found)
        self.is_empty = not found
        return True

    def _log_new(self, found: list[Leftover]) -> None:
        for leftover in found:
            if leftover not in self._logged:
                log.warning("left_in_store", route=leftover.route, why=leftover.why)
        self._logged = found


def count_drainable(config: Config, routes: Sequence[RouteStats]) -> int:
    """Count the envelopes that the workers of this configuration will still deliver."""
    return sum(
        stats.waiting + (stats.dead - stats.rejected if _has_dead_letter(config, stats) else 0)
        for stats in routes
        if stats.configured
    )


def leftovers(config: Config, routes: Sequence[RouteStats]) -> Iterator[Leftover]:
    """Yield the routes with envelopes that no worker of this configuration takes out."""
    for stats in routes:
        if not stats.configured and stats.waiting + stats.dead:
            yield Leftover(stats.route, f"not in the configuration: {stats.waiting + stats.dead}")
        elif stats.configured and stats.dead and not _has_dead_letter(config, stats):
            yield Leftover(stats.route, f"dead, and no dead-letter target: {stats.dead}")
        elif stats.configured and stats.rejected:
            yield Leftover(stats.route, f"dead, and their target rejects them: {stats.rejected}")
        if stats.cold_left_ms is not None:
            yield Leftover(stats.route, "some may be in its cold tier")


def _has_dead_letter(config: Config, stats: RouteStats) -> bool:
    return config.routes[stats.route].dead_letter is not None
