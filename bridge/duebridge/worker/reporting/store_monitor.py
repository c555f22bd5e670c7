"""Samples the whole store once a minute: memory, fitness, and routes that no worker serves.

Detects a store that fills up or becomes unfit after the start.
"""

from collections.abc import Callable
from typing import NamedTuple

import structlog

from duebridge.config.durability import DurabilityNeeds
from duebridge.errors import StoreError
from duebridge.runtime import PeriodicTask
from duebridge.store.server.connection import Connection
from duebridge.store.server.fitness import fitness_faults, read_vitals
from duebridge.telemetry.outage import Outage

SNAPSHOT_EVERY_S = 60.0
AGAIN_S = 5.0  # without a sample: readiness may wait for it

log = structlog.get_logger()


class StoreSnapshot(NamedTuple):
    """One sample: memory of the fullest node, fitness faults that are not allowed, absent routes.

    `absent` counts envelopes by route, for routes in the store that are not configured; 0: only its
    cold tier may have some.
    """

    used_bytes: int
    limit_bytes: int
    unfit: tuple[str, ...]
    absent: dict[str, int]


class StoreMonitor(PeriodicTask):
    """Keeps the latest `snapshot`; None before the first sample and while sampling fails."""

    def __init__(
        self,
        connection: Connection,
        absent: Callable[[], dict[str, int]],
        allow_unfit: tuple[str, ...] = (),
        needs: Callable[[], DurabilityNeeds] = DurabilityNeeds,
    ) -> None:
        """Watch a store; `needs` are those of the routes in effect."""
        super().__init__("store-monitor")
        self.snapshot: StoreSnapshot | None = None
        self._connection = connection
        self._absent = absent
        self._allowed = set(allow_unfit)
        self._needs = needs
        self._failure = Outage("store_monitor_failed", "store_monitor_works")

    def step(self) -> float:
        """Sample; sooner again without a sample."""
        self.run_once()
        return AGAIN_S if self.snapshot is None else SNAPSHOT_EVERY_S

    def run_once(self) -> None:
        """Sample once; the store may be unreachable or deny the commands.

        Whatever else is raised is logged once, and once that a sample succeeds again.
        """
        try:
            self.snapshot = self._sample()
            self._failure.end()
        except StoreError as error:
            self.snapshot = None
            log.debug("store_not_seen", error=str(error))
        except Exception as error:
            self.snapshot = None
            self._failure.begin_fault(error)

    def _sample(self) -> StoreSnapshot:
        vitals = read_vitals(self._connection)
        faults = fitness_faults(self._connection, self._needs()).keys() - self._allowed
        unfit = tuple(sorted(faults))
        return StoreSnapshot(vitals.used_bytes, vitals.limit_bytes, unfit, self._absent())
