"""Workers come and go under load: they find the shards, and share them without a coordinator."""

import signal
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from datetime import datetime
from pathlib import Path

import pytest

from duebridge.envelope import Envelope
from duebridge.producer import Producer
from duebridge.store.routing import shard_number
from tests.acceptance.site import Recorded, Site, Worker, embedded_site
from tests.support.command import wait_until

pytestmark = pytest.mark.timeout(120)

SHARDS = set(range(4))  # of the route `orders`
# Far from each other: a worker that stands for seconds, on a busy machine, leaves no lease behind.
MOVED_WITHIN_MS = 6_000
LEASE_MS = 15_000

EVERY_S = 0.02
AT_ONCE = 5
DELAY = "100ms"


class Load(threading.Thread):
    """Schedules envelopes of one route, `AT_ONCE` every `EVERY_S`, until it is stopped."""

    def __init__(self, config: Path, route: str) -> None:
        super().__init__(name="load")
        self.accepted: list[str] = []
        self._config = config
        self._route = route
        self._stop_asked = threading.Event()

    def run(self) -> None:
        with Producer.from_config(self._config) as producer:
            while not self._stop_asked.wait(EVERY_S):
                begin = len(self.accepted)
                ids = [f"load-{number}" for number in range(begin, begin + AT_ONCE)]
                envelopes = [Envelope.new(b"body", id=each, delay=DELAY) for each in ids]
                producer.schedule_many(self._route, envelopes)
                self.accepted += ids

    def stop(self) -> None:
        self._stop_asked.set()
        self.join()


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    with embedded_site(tmp_path) as site:
        site.file.write_text(site.file.read_text().replace("lease: 3s", f"lease: {LEASE_MS}ms"))
        yield site


@pytest.fixture
def load(site: Site) -> Iterator[Load]:
    load = Load(site.file, "orders")
    yield load
    if load.is_alive():
        load.stop()


@pytest.fixture
def start(site: Site) -> Iterator[Callable[[], Worker]]:
    """Start a worker that lives until the end of the test, unless that ends it."""
    with ExitStack() as stack:
        yield lambda: stack.enter_context(site.running())


def first_of_shards(records: list[Recorded], pid: int) -> dict[int, int]:
    """When a worker delivered the first of each shard, in epoch ms."""
    first: dict[int, int] = {}
    for each in records:
        if each.pid == pid:
            first.setdefault(shard_number(each.id, len(SHARDS)), each.at_ms)
    return first


def started_ms(worker: Worker) -> int:
    [line] = worker.logged("started")
    return round(datetime.fromisoformat(line["timestamp"]).timestamp() * 1000)


def has_all_shards(site: Site, worker: Worker) -> bool:
    return set(first_of_shards(site.records(), worker.pid)) == SHARDS


def is_held(producer: Producer, id: str) -> bool:
    found = producer.get("orders", id)
    return found is not None and found.state == "unack"


def see_delivered(site: Site, load: Load, at_least: int = 0, more: int = 0) -> None:
    wait_until(lambda: len(load.accepted) >= at_least, "more load")
    load.stop()
    wait_until(lambda: len(set(site.delivered())) == len(load.accepted) + more, "all of the load")


def test_worker_that_is_added_delivers_of_every_shard_soon(
    site: Site, load: Load, start: Callable[[], Worker]
) -> None:
    workers = [start()]
    load.start()
    for _ in range(2):
        wait_until(lambda: has_all_shards(site, workers[-1]), "the latest worker to have its share")
        workers.append(start())
    wait_until(lambda: has_all_shards(site, workers[-1]), "the last worker to have its share")
    see_delivered(site, load)
    for worker in workers[1:]:
        latest_ms = max(first_of_shards(site.records(), worker.pid).values())
        assert latest_ms - started_ms(worker) <= MOVED_WITHIN_MS
    assert Counter(site.delivered()) == Counter(load.accepted)


def test_worker_that_is_killed_delays_only_what_it_held(
    site: Site, load: Load, start: Callable[[], Worker]
) -> None:
    victim = start()
    site.send("orders", {"hold-1": "0s"})
    with Producer.from_config(site.file) as producer:
        wait_until(lambda: is_held(producer, "hold-1"), "it to hold one for certain")
    stayer = start()
    load.start()
    wait_until(lambda: has_all_shards(site, victim) and has_all_shards(site, stayer), "both")
    victim.end(signal.SIGKILL)
    see_delivered(site, load, at_least=len(load.accepted) + 200, more=1)
    late = [each for each in site.records() if each.at_ms - each.due_at_ms > MOVED_WITHIN_MS]
    assert "hold-1" in {each.id for each in late}
    assert {each.attempt for each in late} == {2}  # it held them; nobody else had to wait
    assert max(each.at_ms - each.due_at_ms for each in late) <= LEASE_MS + MOVED_WITHIN_MS
    assert set(site.delivered()) == {*load.accepted, "hold-1"}
    copies = {each for each, count in Counter(site.delivered()).items() if count > 1}
    assert copies <= {each.id for each in site.records() if each.attempt == 2}
