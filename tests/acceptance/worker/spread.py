"""A worker whose shards are spread over several nodes, and a trickle of work for some of them."""

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import pairwise

from duebridge.envelope import Envelope
from duebridge.errors import StoreError
from duebridge.ports.publisher import Delivery
from duebridge.store.delay_store import DelayStore
from duebridge.store.routing import RouteStore
from tests.acceptance.works import Works
from tests.acceptance.works import started as works_started
from tests.support.running_clock import RunningClock

SHARDS = 12
EVERY_S = 0.02


class Spread(Works):
    """A worker of a route with many shards, or of several; notes when each was published."""

    worker = Works.worker | {"drain": "2s", "publish_deadline": "1s"}

    def __init__(self, url: str, shards: int = SHARDS, routes: Sequence[str] = ("r",)) -> None:
        super().__init__(url, {each: f"a/{each}" for each in routes}, shards=shards, lease="10s")
        self.clock = RunningClock()
        self.published_at: dict[str, list[float]] = {}
        self.publishers["a"].script(self._note)
        self.stores = [
            store
            for each in routes
            for store in RouteStore(self.connection, self.namespace, each, shards).shards
        ]

    def _note(self, delivery: Delivery) -> None:
        self.published_at.setdefault(delivery.id, []).append(self.clock.seconds())

    def published(self, prefix: str, since: float = 0.0) -> list[float]:
        """Return when envelopes were published, by the clock, in order."""
        found = [
            at
            for name, ats in dict(self.published_at).items()
            if name.startswith(prefix)
            for at in ats
        ]
        return sorted(at for at in found if at >= since)


@contextmanager
def started(works: Spread) -> Iterator[None]:
    works.clock.start()
    with works_started(works):
        try:
            yield
        finally:
            works.clock.end()


def schedule(store: DelayStore, *ids: str, delay: str = "1ms") -> None:
    envelopes = [Envelope.new(b"body", id=each, delay=delay) for each in ids]
    store.schedule(envelopes, max_delay_ms=10**9)


@contextmanager
def trickle(works: Spread, stores: list[DelayStore], prefix: str) -> Iterator[dict[str, float]]:
    """Schedule an envelope every 20 ms at one of the shards in turn; give when each was due."""
    due_at: dict[str, float] = {}
    stop = threading.Event()

    def run() -> None:
        number = 0
        while not stop.wait(EVERY_S):
            name, number = f"{prefix}{number}", number + 1
            with suppress(StoreError):
                schedule(stores[number % len(stores)], name)
                due_at[name] = works.clock.seconds()

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    try:
        yield due_at
    finally:
        stop.set()
        thread.join()


def longest_gap_s(times: list[float], since: float, until: float) -> float:
    within = [since, *(at for at in times if since < at < until), until]
    return max(later - earlier for earlier, later in pairwise(within))


def loops_running() -> int:
    return sum(each.name.startswith("worker-") for each in threading.enumerate())


def threads_of(works: Works) -> int:
    names = [each.node for each in works.runner.worker._loops.values()]
    alive = [each.name for each in threading.enumerate()]
    return sum(alive.count(f"worker-{name}") for name in names)
