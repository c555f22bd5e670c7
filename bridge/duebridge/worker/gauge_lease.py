"""Elects the one worker that exports a shard's gauges, so that sums over workers are right.

The gauge lease is in the store (`lua/watch.lua`). A worker that dies loses it after `LEASE_MS`, and
another one takes it. By its own clock a worker has it no longer than the store says.
"""

import time
from collections.abc import Callable
from math import inf

from duebridge.errors import StoreError
from duebridge.store.delay_store import DelayStore
from duebridge.store.wire.poll import Poll

LEASE_MS = 15_000
RENEW_EVERY_S = 5.0


class GaugeLease:
    """One worker's lease on exporting a shard's gauges; a worker without a name never takes it.

    Only the loop that has the shard asks; any thread may read `is_held`.
    """

    def __init__(self, worker: str = "", monotonic: Callable[[], float] = time.monotonic) -> None:
        self._worker = worker
        self._monotonic = monotonic
        self._held_until = -inf
        self.due_at = -inf if worker else inf  # of the next call

    @property
    def is_held(self) -> bool:
        """Whether this worker has the lease."""
        return self._monotonic() < self._held_until

    @property
    def is_held_or_unused(self) -> bool:
        """Whether no other process has it; of those that never take it, each."""
        return self.is_held or not self._worker

    def take(self, store: DelayStore) -> Poll | None:
        """Take or keep the lease; return the store's poll.

        None: the store did not answer, or refused. Deliveries do not depend on it: no error is
        raised.
        """
        began = self._monotonic()
        self.due_at = began + RENEW_EVERY_S
        try:
            reply = store.watch(self._worker, LEASE_MS)
        except StoreError:
            return None
        left_s = reply.left_ms / 1000
        if reply.is_mine:
            self._held_until = began + left_s
        else:
            self._held_until = -inf
            self.due_at = began + min(RENEW_EVERY_S, left_s)
        return reply.poll

    def give_up(self, store: DelayStore) -> None:
        """Release the lease, if it is held, to the next worker; raises `StoreError`."""
        if self.is_held:
            self._held_until, self.due_at = -inf, inf
            store.watch(self._worker, 0)
