"""Looks at the store as a whole once a minute: its memory, whether it is fit, forgotten routes.

A store that became unfit after the start, or that fills up, is nobody's failure until it is
everybody's. In a thread of its own: nothing waits for what it asks.
"""

import threading
from collections.abc import Callable
from typing import NamedTuple

import structlog

from duebridge.errors import StoreError
from duebridge.store.connection import Connection
from duebridge.store.fitness import fitness_faults, read_vitals

SNAPSHOT_EVERY_S = 60.0

log = structlog.get_logger()


class StoreSnapshot(NamedTuple):
    """What was seen: memory of the fullest node, faults that nobody allowed, envelopes by route.

    The routes are those of which the store holds envelopes, and that nobody delivers.
    """

    used_bytes: int
    limit_bytes: int
    unfit: tuple[str, ...]
    absent: dict[str, int]


class StoreMonitor:
    """The latest snapshot of a store; None until it was seen, and while it cannot be."""

    def __init__(
        self,
        connection: Connection,
        absent: Callable[[], dict[str, int]],
        allow_unfit: tuple[str, ...] = (),
    ) -> None:
        self.snapshot: StoreSnapshot | None = None
        self._connection = connection
        self._absent = absent
        self._allowed = set(allow_unfit)
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._run, name="store-monitor", daemon=True)

    def start(self) -> None:
        """Begin to look."""
        self._thread.start()

    def close(self) -> None:
        """Look no more."""
        self._closed.set()

    def run_once(self) -> None:
        """Look once; the store may be away, or let us not ask."""
        try:
            vitals = read_vitals(self._connection)
            faults = fitness_faults(self._connection).keys() - self._allowed
            self.snapshot = StoreSnapshot(
                vitals.used_bytes, vitals.limit_bytes, tuple(sorted(faults)), self._absent()
            )
        except StoreError as error:
            self.snapshot = None
            log.debug("store_not_seen", error=str(error))

    def _run(self) -> None:
        self.run_once()
        while not self._closed.wait(SNAPSHOT_EVERY_S):
            self.run_once()
