"""The store of an intake fails over amid its messages: none is lost, each is stored once."""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing
from pathlib import Path
from threading import Event
from typing import Any

import pytest

from duebridge.config.models import Config
from duebridge.errors import StoreUnavailable
from duebridge.intake.process import IntakeRunner
from duebridge.store.keys import Shard
from duebridge.store.routing import RouteStore
from duebridge.store.server.connection import Connection, Reply, open_connection
from duebridge.store.server.scripts import Script
from tests.support.contract.source_under_test import Origin, numbered
from tests.support.redis.redis_sets import SETS, AnySet, SentinelSet
from tests.support.servers import wait_until

pytestmark = [pytest.mark.long, pytest.mark.timeout(180)]

COUNT = 3_000
SHARDS = 4
AMID = 10  # schedule calls, of at most 125 rows: the second or third batch is stored in part
WITHIN_S = 60.0
# Each kind of set and of source: they know nothing of each other.
PAIRS = [("sentinel", "quorum"), ("cluster", "kafka-python"), ("sentinel", "librdkafka")]


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


@pytest.fixture
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[AnySet]:
    with SETS[request.param](tmp_path / "set", "--appendonly", "yes") as servers:
        yield servers


def config_of(store: AnySet, origin: Origin) -> Config:
    replicas = 2 if isinstance(store, SentinelSet) else 1
    durability = {"replicated": {"replicas": replicas, "timeout": "500ms"}}
    return Config.model_validate(
        {
            "version": 1,
            "store": {"url": store.url, "namespace": "intake", "durability": durability},
            "brokers": {"it": origin.settings, "box": {"type": "memory"}},
            "routes": {
                "r": {
                    "target": {"broker": "box", "topic": "t"},
                    "dead_letter": {"broker": "box", "topic": "dead"},
                    "shards": SHARDS,
                }
            },
            "intakes": {"in": {"source": {"broker": "it", **origin.source}, "route": "r"}},
        }
    )


def stored(connection: Connection, config: Config) -> int:
    try:
        shards: Sequence[Any] = RouteStore.open(connection, "intake", config.routes["r"]).shards
        return sum(shard.next().pending for shard in shards)
    except StoreUnavailable:
        return -1


@pytest.mark.parametrize(("store", "origin"), PAIRS, indirect=True)
def test_failover_amid_a_batch_loses_and_repeats_nothing(store: AnySet, origin: Origin) -> None:
    origin.broker.send(origin.name, numbered(COUNT))
    config = config_of(store, origin)
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
        old = store.kill_master(Shard("intake", "r", 0).tag, held.may_go_on.set)
        old.start()
        wait_until(lambda: stored(seen, config) >= COUNT, "all messages", WITHIN_S)
        wait_until(lambda: runner.loops[0].waiting_s() == 0, "the last batch", WITHIN_S)
        assert runner.drain()
        assert stored(seen, config) == COUNT
    with closing(origin.broker.open(origin.name)) as rest:
        assert not rest.receive(1.0), "a message was stored, and not settled"
