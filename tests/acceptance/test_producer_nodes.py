"""A producer on a Cluster with a node that is away: what the other nodes have goes on."""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from duebridge import AsyncProducer, Envelope, Producer
from duebridge.config.load import load_config
from duebridge.errors import StoreUnavailable
from duebridge.store.keys import Shard, routes_key
from duebridge.store.routing import shard_number
from duebridge.store.server.connection import open_connection
from tests.support.redis.redis_node import RedisNode
from tests.support.redis.redis_sets import ClusterOfSix

CONFIG = """\
version: 1
store: {{url: "{url}", namespace: {namespace}}}
brokers: {{here: {{type: memory}}}}
routes: {{r: {{target: {{broker: here, topic: t}}, shards: {shards}}}}}
"""
SHARDS = 12
PATIENCE_S = 2.0
AT_ONCE_S = 5.0  # half as long as a call waits for a node that is away


class Halved(NamedTuple):
    """A route whose shards are on several nodes, one of which a test kills."""

    config: Path
    node: RedisNode
    live: list[str]
    gone: list[str]


@pytest.fixture
def halved(steady_six: ClusterOfSix, tmp_path: Path) -> Iterator[Halved]:
    config, namespace = tmp_path / "duebridge.yaml", tmp_path.name
    config.write_text(CONFIG.format(url=steady_six.url, namespace=namespace, shards=SHARDS))
    shards = [Shard(namespace, "r", number) for number in range(SHARDS)]
    owners = [steady_six.owner_of(each.wake) for each in shards]
    registry = steady_six.owner_of(routes_key(namespace))
    node = next(each for each in owners if each is not registry)
    ids = [f"id{number}" for number in range(200)]
    gone = [each for each in ids if owners[shard_number(each, SHARDS)] is node]
    yield Halved(config, node, [each for each in ids if each not in gone], gone)
    steady_six.mend()


def envelopes(*ids: str) -> list[Envelope]:
    return [Envelope.new(b"x", delay="1h", id=each) for each in ids]


def test_schedule_many_stores_what_live_nodes_have_beside_a_dead_one(halved: Halved) -> None:
    first, *live = halved.live[:8]
    config = load_config(halved.config)
    with Producer(config, open_connection(config.store.url), PATIENCE_S) as producer:
        producer.schedule_many("r", envelopes(first))
        halved.node.kill()
        with pytest.raises(StoreUnavailable) as failed:
            producer.schedule_many("r", envelopes(halved.gone[0], *live, halved.gone[1]))
        assert failed.value.ids == tuple(halved.gone[:2])
        assert [each.id for each in failed.value.receipts] == live
        assert all(producer.get("r", each) for each in live)


def test_async_call_beside_many_of_a_dead_node_is_answered_at_once(halved: Halved) -> None:
    live, gone = halved.live[:4], halved.gone[:20]

    async def schedule(producer: AsyncProducer, id_: str) -> str:
        return (await producer.schedule("r", b"x", delay="1h", id=id_)).status

    async def run() -> None:
        async with AsyncProducer.from_config(halved.config) as producer:
            await schedule(producer, live[0])
            halved.node.kill()
            waiting = [asyncio.create_task(schedule(producer, each)) for each in gone]
            async with asyncio.timeout(AT_ONCE_S):
                calls = [schedule(producer, each) for each in live[1:]]
                assert await asyncio.gather(*calls) == ["accepted"] * 3
                assert await producer.get("r", id=live[0])
                assert await producer.cancel("r", live[0]) == "cancelled"
            for each in waiting:
                each.cancel()
            await asyncio.gather(*waiting, return_exceptions=True)

    asyncio.run(run())
