"""Callers that go on while a store fails over, and servers that are asked how long they stood."""

import secrets
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import pairwise

import redis

from duebridge.errors import StoreError, StoreUnavailable
from duebridge.store.delay_store import DelayStore
from tests.support.desk import DAY_MS, acks, envelope
from tests.support.redis.redis_node import RedisNode
from tests.support.running_clock import ends_within
from tests.support.servers import wait_until

RESUMED_WITHIN_S = 5.0  # after the new master answers: docs/high-availability.md
WITHIN_S = 60.0


class Traffic:
    """A thread that schedules, claims and acks, impatiently, and notes when a claim succeeded."""

    def __init__(self, store: DelayStore) -> None:
        self.claimed_at: list[float] = []
        self.faults: list[StoreError] = []
        self._store = store
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._stop.wait(0.01):
            try:
                if self._claims():
                    self.claimed_at.append(time.monotonic())
            except StoreUnavailable:
                pass
            except StoreError as error:
                self.faults.append(error)

    def _claims(self) -> bool:
        """Schedule, claim and ack; nothing is claimed where the new master never had it."""
        name = secrets.token_hex(6)
        self._store.schedule([envelope(name, at=1)], max_delay_ms=DAY_MS)
        claim = self._store.claim(100, 1000, promote=100)
        self._store.ack(acks(claim.token, *(each.id for each in claim.leased)))
        return claim.taken > 0

    def resumes(self) -> None:
        """Fail unless it claims again in time, but for stalls of this whole process."""
        with ends_within(RESUMED_WITHIN_S):
            self.await_claim()

    def await_claim(self, within_s: float = WITHIN_S) -> None:
        """Return once a turn that begins now has succeeded."""
        began = time.monotonic()
        wait_until(
            lambda: len([at for at in self.claimed_at[-3:] if at > began]) > 1, "claims", within_s
        )

    def longest_gap_s(self, since: float) -> float:
        times = [since, *(at for at in self.claimed_at if at > since), time.monotonic()]
        return max(later - earlier for earlier, later in pairwise(times))

    def close(self) -> None:
        self._stop.set()
        self._thread.join()
        assert self.faults == []


class Pulse:
    """Asks servers themselves: how long did these, or we, stand still on a busy machine?"""

    def __init__(self, nodes: Sequence[RedisNode]) -> None:
        self.longest_s = 0.0
        self._nodes = nodes
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        last = time.monotonic()
        while not self._stop.wait(0.01):
            for each in self._nodes:
                with suppress(redis.RedisError):
                    each.ask("PING")
            now = time.monotonic()
            self.longest_s, last = max(self.longest_s, now - last), now

    def longest_wait_s(self) -> float:
        """Return what a call may take that waits for none but its own server."""
        return 1.0 + 3 * self.longest_s  # a turn of the traffic is three calls

    def close(self) -> None:
        self._stop.set()
        self._thread.join()


@contextmanager
def flowing(*stores: DelayStore) -> Iterator[list[Traffic]]:
    traffic = [Traffic(store) for store in stores]
    try:
        for each in traffic:
            each.await_claim()
        yield traffic
    finally:
        for each in traffic:
            each.close()
