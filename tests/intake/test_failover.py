"""The store of an intake fails over amid its messages: none is lost, each is stored once."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing
from pathlib import Path
from threading import Event
from typing import Any, NamedTuple

import pytest

from duebridge.config.models import Config
from duebridge.errors import StoreUnavailable
from duebridge.intake.process import IntakeRunner
from duebridge.store.routing import RouteStore
from duebridge.store.server.connection import Connection, Reply, open_connection
from duebridge.store.server.scripts import Script
from tests.support.contract.source_under_test import numbered
from tests.support.kafka.kafka_sources import KafkaSources
from tests.support.rabbitmq.rabbitmq_queues import RabbitQueues
from tests.support.redis.redis_sets import RedisNode, redis_cluster_of_six, sentinel_set
from tests.support.servers import wait_until

pytestmark = [pytest.mark.long, pytest.mark.timeout(180)]

COUNT = 6_000
SHARDS = 4
AMID = 10  # schedule calls, of at most 125 rows: the second or third batch is stored in part
WITHIN_S = 60.0


class HeldConnection(Connection):
    """A connection whose `AMID`th schedule call waits until the master is dead."""

    def __init__(self, connection: Connection) -> None:
        super().__init__(connection.client)
        self.is_amid, self.may_go_on = Event(), Event()
        self._left = AMID

    def run(self, called: Script, *rest: Any, **named: Any) -> Reply:
        if called.name == "schedule":
            self._left -= 1
            if self._left == 0:
                self.is_amid.set()
                assert self.may_go_on.wait(WITHIN_S)
        return super().run(called, *rest, **named)


class Set(NamedTuple):
    """A set of servers, and what fails over in it."""

    url: str
    servers: Any

    def fail_over(self, killed: Callable[[], None]) -> None:
        """Kill a master, and bring it back as a replica once another one is promoted."""
        if hasattr(self.servers, "sentinels"):
            old: RedisNode = self.servers.master()
            old.kill()
            killed()
            self.servers.await_master_after(old)
        else:
            old = self.servers.masters()[0]
            old.kill()
            killed()
            wait_until(lambda: len(self.servers.masters()) == 3, "another master")
        old.start()


@pytest.fixture(params=["sentinel", "cluster"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Set]:
    make = {"sentinel": sentinel_set, "cluster": redis_cluster_of_six}[request.param]
    with make(tmp_path / "set", "--appendonly", "yes") as servers:
        yield Set(servers.url, servers)


@pytest.fixture(params=["quorum", "kafka-python", "librdkafka"])
def source(request: pytest.FixtureRequest) -> Iterator[tuple[Any, dict[str, Any], str]]:
    """The broker of a source, its settings, and the field that names what is read."""
    if request.param == "quorum":
        url = request.getfixturevalue("rabbitmq_url")
        with closing(RabbitQueues(url, "quorum")) as queues:
            yield queues, {"type": "rabbitmq", "url": url}, "queue"
    else:
        server = request.getfixturevalue("kafka_bootstrap")
        settings = {"type": "kafka", "bootstrap_servers": [server], "client": request.param}
        with closing(KafkaSources(server, request.param)) as topics:
            yield topics, settings, "topic"


def replicas_of(store: Set) -> int:
    return 2 if hasattr(store.servers, "sentinels") else 1


def config_of(store: Set, broker: dict[str, Any], source: dict[str, Any]) -> Config:
    durability = {"replicated": {"replicas": replicas_of(store), "timeout": "500ms"}}
    return Config.model_validate(
        {
            "version": 1,
            "store": {"url": store.url, "namespace": "intake", "durability": durability},
            "brokers": {"it": broker, "box": {"type": "memory"}},
            "routes": {
                "r": {
                    "target": {"broker": "box", "topic": "t"},
                    "dead_letter": {"broker": "box", "topic": "dead"},
                    "shards": SHARDS,
                }
            },
            "intakes": {"in": {"source": {"broker": "it", **source}, "route": "r"}},
        }
    )


def stored(connection: Connection, config: Config) -> int:
    try:
        shards: Sequence[Any] = RouteStore.open(connection, "intake", config.routes["r"]).shards
        return sum(shard.next().pending for shard in shards)
    except StoreUnavailable:
        return -1


def test_failover_amid_a_batch_loses_and_repeats_nothing(
    store: Set, source: tuple[Any, dict[str, Any], str]
) -> None:
    broker, settings, field = source
    name = broker.create()
    broker.send(name, numbered(COUNT))
    group = {"group": f"group-of-{name}"} if field == "topic" else {}
    config = config_of(store, settings, {field: name, **group})
    with ExitStack() as stack:
        seen, used = (
            stack.enter_context(closing(open_connection(store.url, 1.0))) for _ in range(2)
        )
        held = HeldConnection(used)
        runner = IntakeRunner(config, held, ["in"])
        stack.callback(runner.drain)
        runner.start()
        assert held.is_amid.wait(WITHIN_S)
        assert 0 < stored(seen, config) < COUNT
        store.fail_over(held.may_go_on.set)
        wait_until(lambda: stored(seen, config) >= COUNT, "all messages", WITHIN_S)
        wait_until(lambda: runner.loops[0].waiting_s() == 0, "the last batch", WITHIN_S)
        assert runner.drain()
        assert stored(seen, config) == COUNT
    with closing(broker.open(name)) as rest:
        assert not rest.receive(1.0), "a message was stored, and not settled"
