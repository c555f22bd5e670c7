"""A rate that many processes share: so many units in a window of time, counted in the store.

The server's own expiry ends a window, so that no process' clock matters.
"""

from typing import Any, NamedTuple

from duebridge.store.connection import Connection, translated_errors
from duebridge.store.keys import checked_name

SLOW_PER_SECOND = 100  # below it a window is a whole second
WINDOW_MS = 100


class Grant(NamedTuple):
    """How many units may go now, and how long until the window is over."""

    units: int
    wait_ms: int


class Pace:
    """At most `per_second` units over everybody who names the same pace."""

    def __init__(self, connection: Connection, namespace: str, name: str, per_second: int) -> None:
        self._client: Any = connection.client
        self._key = f"{{{checked_name('namespace', namespace)}}}:pace:{name}"
        self._window_ms = 1000 if per_second < SLOW_PER_SECOND else WINDOW_MS
        self._units = per_second * self._window_ms // 1000

    def take(self, units: int) -> Grant:
        """Take up to `units` of this window; none may be left. Raises `StoreError`."""
        with translated_errors(), self._client.pipeline(transaction=True) as pipe:
            pipe.set(self._key, 0, px=self._window_ms, nx=True)
            pipe.incrby(self._key, units)
            pipe.pttl(self._key)
            _, taken, wait_ms = pipe.execute()
        return Grant(max(0, min(units, self._units - (taken - units))), max(1, wait_ms))
