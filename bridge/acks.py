"""Confirms on their way to the store: those of a steady load share an ack.

A lone one is acked at once. What follows within `ACK_EVERY_S` of a shard's last ack waits until
that is over: a call to a server that was idle costs it ten times what one more id costs. What is
lost with the process meanwhile is delivered again, like anything else in flight.
"""

import threading
import time
from collections.abc import Callable, Sequence

from bridge.settle import Confirmed
from bridge.station import BACKLOG, Station

ACK_EVERY_S = 0.02


class Acks:
    """What was confirmed and is not acked yet, by shard; any thread may ask."""

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._monotonic = monotonic
        self._lock = threading.Lock()
        self._waiting: dict[Station, Confirmed] = {}
        self._acked_at: dict[Station, float] = {}

    def gather(
        self, station: Station, confirmed: Confirmed, *, at_once: bool = False
    ) -> Confirmed | None:
        """Return what is to be acked now, with all that waited; None where nothing is."""
        with self._lock:
            gathered = self._waiting.pop(station, Confirmed()).joined(confirmed)
            if not gathered.ids:
                return None
            now = self._monotonic()
            is_due = now >= self._acked_at.get(station, 0.0) + ACK_EVERY_S
            if is_due or at_once or len(gathered.ids) >= BACKLOG:
                self._acked_at[station] = now
                return gathered
            self._waiting[station] = gathered
            return None

    def stations(self) -> Sequence[Station]:
        """Return the shards of which something waits."""
        with self._lock:
            return list(self._waiting)

    def overdue(self) -> Sequence[Station]:
        """Return the shards whose next batch should have taken along what waits, and has not come.

        They are told once: whoever asks has `ACK_EVERY_S` to take it.
        """
        with self._lock:
            now = self._monotonic()
            found = [each for each in self._waiting if self._overdue_at(each) <= now]
            self._acked_at |= dict.fromkeys(found, now)
            self._forget(now)
            return found

    def sleep_s(self) -> float | None:
        """Seconds until something is overdue; None where nothing waits."""
        with self._lock:
            waits = [self._overdue_at(each) - self._monotonic() for each in self._waiting]
            return max(0.0, min(waits)) if waits else None

    def _overdue_at(self, station: Station) -> float:
        return self._acked_at.get(station, 0.0) + 2 * ACK_EVERY_S

    def _forget(self, now: float) -> None:
        """Keep no shard that is not served any more."""
        for station in [each for each, at in self._acked_at.items() if at + 1 < now]:
            if station not in self._waiting:
                del self._acked_at[station]
