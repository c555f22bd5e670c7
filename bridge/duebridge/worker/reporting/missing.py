"""The routes with envelopes that a process started without: it is not ready while it lacks them.

A running process refuses such a configuration and goes on with the old one; one that starts has no
old one. What appears later, of a newer configuration, makes no running process unready.
"""

from collections.abc import Callable, Mapping

import structlog

from duebridge.config.models import Config
from duebridge.errors import StoreError
from duebridge.worker.reload import left_behind
from duebridge.worker.reporting.store_monitor import StoreSnapshot

log = structlog.get_logger()


class MissingRoutes:
    """The absent routes of the start that are still missing, each a fault.

    `config` returns the configuration in effect, `snapshot` the latest sample of the store.
    """

    def __init__(
        self,
        absent: Callable[[], Mapping[str, int]],
        config: Callable[[], Config],
        snapshot: Callable[[], StoreSnapshot | None],
    ) -> None:
        """Ask the store; where it does not answer, its first sample stands for the start."""
        self._config = config
        self._snapshot = snapshot
        self._at_start: Mapping[str, int] | None = None
        try:
            self._begin(absent())
        except StoreError as error:
            log.warning("absent_routes_unknown", error=str(error))

    def _begin(self, absent: Mapping[str, int]) -> None:
        self._at_start = absent
        for reason in self.faults():
            log.error("route_missing", reason=reason)

    def faults(self) -> list[str]:
        """Return a line per route, until it is configured, allowed to be absent, or empty."""
        if self._at_start is None and (first := self._snapshot()) is not None:
            self._begin(first.absent)
        if not self._at_start:
            return []
        config, snapshot = self._config(), self._snapshot()
        named = {*config.routes, *config.allow_absent}
        holding = self._at_start if snapshot is None else snapshot.absent
        names = self._at_start.keys() & holding.keys() - named
        return left_behind({name: holding[name] for name in names})
