"""A worker process ends in time after SIGTERM, whatever its store and its brokers do."""

import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager
from pathlib import Path
from secrets import token_hex
from urllib.parse import urlsplit

import pytest

from duebridge.envelope import Envelope
from duebridge.store.delay_store import DelayStore
from duebridge.store.keys import Shard, routes_key
from duebridge.store.server.connection import open_connection
from duebridge.store.server.fitness import count_listeners
from duebridge.store.wire.poll import Poll
from tests.acceptance.site import Worker, up
from tests.support.command import ENVIRONMENT, wait_until
from tests.support.network.proxy import Proxy, proxied
from tests.support.rabbitmq.rabbitmq_queues import RabbitQueues

PROGRAM = Path(__file__).with_name("stopping.py")
SHARDS = 8
WITHIN_S = 1.0 + 1.3 + 2.0  # drain + publish_deadline + 2 s, by the worker's own clock
LONG_DRAIN_S = 60
CONFIG = """\
version: 1
store: {{url: "{url}", namespace: {namespace}}}
brokers: {{here: {broker}}}
worker: {{publish_deadline: 1300ms, drain: {drain}s}}
defaults: {{lease: 3s}}
routes: {{orders: {{target: {{broker: here, {target}}}, shards: {shards}}}}}
"""
MEMORY = {"broker": "{type: memory}", "target": "topic: orders"}
Start = Callable[..., AbstractContextManager[Worker]]


class Store:
    """A store behind a proxy, with a namespace of the test's own."""

    def __init__(self, url: str, proxy: Proxy, shards: int) -> None:
        parts = urlsplit(url)
        self.proxy = proxy
        self.shards = shards
        self.url = parts._replace(netloc=f"127.0.0.1:{proxy.port}").geturl()
        self.namespace = f"test-{token_hex(6)}"
        self._connection = open_connection(url)

    def schedule(self) -> None:
        """Have one envelope due at once in each shard."""
        for number, shard in enumerate(self._shards()):
            due = Envelope.new(b"body", id=f"due-{number}", delay="1ms")
            DelayStore(self._connection, shard).schedule([due], max_delay_ms=10**9)

    def is_empty(self) -> bool:
        return not any(each.envelopes for each in self._polls())

    def is_leased(self) -> bool:
        return any(each.unack for each in self._polls())

    def has_listeners(self) -> bool:
        return any(count_listeners(self._connection, self._shards()))

    def _polls(self) -> list[Poll]:
        return [DelayStore(self._connection, shard).next() for shard in self._shards()]

    def delete(self) -> None:
        keys = [key for shard in self._shards() for key in Shard.keys(shard)]
        self._connection.client.delete(*keys, routes_key(self.namespace))
        self._connection.close()

    def _shards(self) -> list[Shard]:
        return [Shard(self.namespace, "orders", number) for number in range(self.shards)]


@pytest.fixture
def store(redis_url: str, request: pytest.FixtureRequest) -> Iterator[Store]:
    with proxied(urlsplit(redis_url).port or 6379) as proxy:
        store = Store(redis_url, proxy, getattr(request, "param", SHARDS))
        yield store
        store.delete()


@pytest.fixture
def start(store: Store, tmp_path: Path) -> Start:
    @contextmanager
    def started(
        *options: str, hanging: str = "", drain_s: int = 1, **broker: str
    ) -> Iterator[Worker]:
        file, log = tmp_path / "duebridge.yaml", tmp_path / "log"
        of_test = {"url": store.url, "namespace": store.namespace, "shards": store.shards}
        file.write_text(CONFIG.format(**of_test, drain=drain_s, **{**MEMORY, **broker}))
        words = [sys.executable, PROGRAM, hanging, "--config", str(file), "run", *options]
        with log.open("wb") as stderr:
            process = subprocess.Popen(words, env=ENVIRONMENT, stderr=stderr, cwd=tmp_path)
        with up(process, log) as worker:
            yield worker

    return started


def seconds_to_end(worker: Worker) -> float:
    """Return what the worker says that its stop took, but for stalls of the whole process."""
    assert worker.end() == 0
    (line,) = worker.logged("drained")
    return float(line["took_s"] - line["stood_s"])


@pytest.mark.parametrize("store", [64], indirect=True)
def test_stop_while_the_store_does_not_answer_ends_in_time(store: Store, start: Start) -> None:
    with start("--health-port", "0") as worker:
        store.schedule()
        store.proxy.fall_silent()
        assert seconds_to_end(worker) <= WITHIN_S


@pytest.mark.parametrize("store", [64], indirect=True)
def test_stop_in_the_middle_of_silent_calls_ends_in_time(store: Store, start: Start) -> None:
    """The loop has gone through some shards already, each call with a timeout of its own."""
    with start() as worker:
        store.proxy.fall_silent()
        wait_until(lambda: "store_unavailable" in worker.events(), "the store to be away")
        assert seconds_to_end(worker) <= WITHIN_S


@pytest.mark.parametrize(("store", "hanging"), [(8, "publish"), (64, "ping")], indirect=["store"])
def test_stop_while_a_client_hangs_ends_in_time(store: Store, start: Start, hanging: str) -> None:
    with start(hanging=hanging) as worker:
        store.schedule()
        if hanging == "publish":
            wait_until(lambda: "hangs" in worker.events(), "a publish that hangs")
        assert seconds_to_end(worker) <= WITHIN_S


def test_stop_while_client_and_store_hang_ends_in_time(store: Store, start: Start) -> None:
    with start(hanging="close") as worker:
        store.proxy.fall_silent()
        assert seconds_to_end(worker) <= WITHIN_S


def test_stop_while_the_broker_is_frozen_ends_in_time(
    store: Store, start: Start, rabbitmq_url: str
) -> None:
    """Its connection stays open, and it answers nothing."""
    parts = urlsplit(rabbitmq_url)
    with closing(RabbitQueues(rabbitmq_url)) as queues, proxied(parts.port or 5672) as proxy:
        netloc = parts.netloc.replace(f":{parts.port}", f":{proxy.port}")
        broker = f'{{type: rabbitmq, url: "{parts._replace(netloc=netloc).geturl()}"}}'
        target = f'exchange: "", routing_key: {queues.create()}'
        with start(broker=broker, target=target) as worker:
            store.schedule()
            wait_until(store.is_empty, "the deliveries")
            proxy.fall_silent()
            store.schedule()
            wait_until(store.is_leased, "publishes without an answer")
            assert seconds_to_end(worker) <= WITHIN_S


def test_stop_that_lasts_leaves_nobody_who_listens(store: Store, start: Start) -> None:
    """A worker that listens, and whose record is gone, would count as frozen."""
    with start(hanging="close", drain_s=LONG_DRAIN_S) as worker:
        wait_until(store.has_listeners, "it to listen")
        worker.process.terminate()
        wait_until(lambda: not store.has_listeners(), "it to stop listening")
        assert worker.process.poll() is None


def test_stop_of_a_healthy_worker_takes_no_time(store: Store, start: Start) -> None:
    with start(drain_s=LONG_DRAIN_S) as worker:
        store.schedule()
        wait_until(store.is_empty, "the deliveries")
        assert seconds_to_end(worker) < LONG_DRAIN_S / 2
        assert worker.events()[-1] == "drained"
