"""A route's life: who opened another one is refused, looks again, and strands nothing."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from duebridge.async_producer import AsyncProducer
from duebridge.config.load import load_config_text
from duebridge.config.models import Config
from duebridge.envelope import Envelope
from duebridge.errors import StoreUnfit
from duebridge.producer import Producer
from duebridge.receipt import Receipt
from duebridge.store.keys import Shard, epochs_key, routes_key
from duebridge.store.registry import Registry
from duebridge.store.routing import RouteStore
from duebridge.store.server.connection import Connection
from duebridge.worker.process import Runner
from duebridge_connectors.memory import MemoryPublisher
from tests.store.conftest import Opened, keys_of
from tests.store.every_call import life_of
from tests.support.desk import envelope
from tests.support.redis.least import admin_of

ROUTE, SHARDS = "r", 4
CONFIG = """\
version: 1
store: {{url: "redis://elsewhere", namespace: {namespace}, allow_unfit: [persistence]}}
brokers: {{here: {{type: memory}}}}
routes: {{r: {{shards: {shards}, target: {{broker: here, topic: t}}}}}}
"""
IDS = [f"id-{number}" for number in range(40)]  # on every shard some


@pytest.fixture
def registry(connection: Connection, namespace: str) -> Registry:
    return Registry(connection, namespace)


def config_of(namespace: str, shards: int = SHARDS) -> Config:
    return load_config_text(CONFIG.format(namespace=namespace, shards=shards), "duebridge.yaml")


def route_store(connection: Connection, namespace: str, shards: int = SHARDS) -> RouteStore:
    return RouteStore.open(connection, namespace, config_of(namespace, shards).routes[ROUTE])


def shard_keys(connection: Connection, namespace: str) -> set[str]:
    return {key for key in keys_of(connection, namespace) if key.startswith(f"{{{namespace}:")}


def metas(connection: Connection, namespace: str, shards: int = SHARDS) -> list[Any]:
    client = admin_of(connection)
    keys = [Shard(namespace, ROUTE, number).key("meta") for number in range(shards)]
    return [client.hmget(key, "epoch", "shards") for key in keys]


# --- opening ---


def test_open_route_gives_every_shard_its_life_once(
    connection: Connection, namespace: str, registry: Registry
) -> None:
    life = registry.open_life(ROUTE, SHARDS)
    assert metas(connection, namespace) == [[life.epoch.encode(), b"4"]] * SHARDS
    assert registry.open_life(ROUTE, SHARDS) == life
    assert len(life.epoch) == 16
    assert registry.open_life("another", SHARDS).epoch != life.epoch


def test_open_route_again_on_a_full_store_writes_nothing_and_works(server: Connection) -> None:
    store = route_store(server, "full")
    store.of("a").schedule([envelope("a", at=1)], max_delay_ms=10**9)
    client: Any = server.client
    client.config_set("maxmemory", 1)
    try:
        before = client.info("persistence")["rdb_changes_since_last_save"]
        again = route_store(server, "full")
        assert client.info("persistence")["rdb_changes_since_last_save"] == before
        again.of("a").promote()
        claim = again.of("a").claim(1, 9_000)
        assert claim.ids == ["a"]
        client.hdel(epochs_key("full"), ROUTE)  # as an older version leaves a full store
        assert route_store(server, "full").of("a").release(claim.token, ["a"]).stale == []
    finally:
        client.config_set("maxmemory", 0)


def test_route_of_an_older_version_gets_an_epoch_and_keeps_what_it_has(
    connection: Connection, namespace: str
) -> None:
    store = route_store(connection, namespace)
    for shard, ids in store.by_shard(IDS, str):
        shard.schedule([envelope(each, delay="1h") for each in ids], max_delay_ms=10**9)
        admin_of(connection).hdel(shard.shard.key("meta"), "epoch", "shards", "master")
    admin_of(connection).hdel(epochs_key(namespace), ROUTE)
    assert store.of("id-0").cancel("id-0") == "cancelled"
    assert all(epoch for epoch, _ in metas(connection, namespace))
    opened = route_store(connection, namespace)
    assert sum(shard.next().pending for shard in opened.shards) == len(IDS) - 1
    assert opened.of("id-1").cancel("id-1") == "cancelled"


def test_route_whose_registration_was_lost_takes_its_shards_over(
    connection: Connection, namespace: str
) -> None:
    store = route_store(connection, namespace)
    store.of("a").schedule([envelope("a", delay="1h")], max_delay_ms=10**9)
    admin_of(connection).delete(routes_key(namespace), epochs_key(namespace))
    opened = route_store(connection, namespace)
    assert opened.of("a").cancel("a") == "cancelled"
    assert store.of("b").cancel("b") == "unknown"  # and who had it open, looks again


def test_open_route_that_is_made_anew_meanwhile_opens_the_new_life(
    connection: Connection,
    namespace: str,
    registry: Registry,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    opened, rival = registry._opened, Registry(connection, namespace)

    def overtaken(*asked: Any) -> str:
        monkeypatch.undo()
        rival.remove_route(ROUTE, SHARDS)
        rival.open_route(ROUTE, SHARDS)
        return opened(*asked)

    monkeypatch.setattr(registry, "_opened", overtaken)
    life = registry.open_life(ROUTE, SHARDS)
    assert life == rival.open_life(ROUTE, SHARDS)
    assert metas(connection, namespace) == [[life.epoch.encode(), b"4"]] * SHARDS


def test_shards_of_a_route_that_was_never_registered_are_not_written(
    connection: Connection, namespace: str
) -> None:
    store = RouteStore(connection, namespace, ROUTE, 1)
    with pytest.raises(StoreUnfit, match="the store does not have it"):
        store.of("a").schedule([envelope("a")], max_delay_ms=10**9)
    assert shard_keys(connection, namespace) == set()


# --- purged, and made anew ---

Schedules = Callable[[Config, Connection, list[Callable[[], object]]], list[list[Receipt]]]


def by_producer(
    config: Config, connection: Connection, between: list[Callable[[], object]]
) -> list[list[Receipt]]:
    """Schedule with one producer, once before each step and once after the last."""
    producer = Producer(config, connection, repeat_for_s=0)
    found = [producer.schedule_many(ROUTE, envelopes())]
    for step in between:
        step()
        found.append(producer.schedule_many(ROUTE, envelopes()))
    return found


def by_async_producer(
    config: Config, connection: Connection, between: list[Callable[[], object]]
) -> list[list[Receipt]]:
    async def live() -> list[list[Receipt]]:
        producer = AsyncProducer(lambda: Producer(config, connection, repeat_for_s=0))
        found = [await producer.schedule_many(ROUTE, envelopes())]
        for step in between:
            await asyncio.to_thread(step)
            found.append(await producer.schedule_many(ROUTE, envelopes()))
        return found

    return asyncio.run(live())


def envelopes() -> list[Envelope]:
    return [Envelope.new(b"body", id=each, delay="1h") for each in IDS]


PRODUCERS = pytest.mark.parametrize("scheduled", [by_producer, by_async_producer])


@PRODUCERS
def test_schedule_into_a_route_made_anew_lands_where_the_new_life_looks(
    connection: Connection, namespace: str, registry: Registry, scheduled: Schedules
) -> None:
    def made_anew() -> None:
        registry.remove_route(ROUTE, SHARDS)
        registry.open_route(ROUTE, SHARDS)

    answers = scheduled(config_of(namespace), connection, [made_anew, made_anew])
    assert [{each.status for each in found} for found in answers] == [{"accepted"}] * 3
    anew = Producer(config_of(namespace), connection)
    assert {anew.cancel(ROUTE, each) for each in IDS} == {"cancelled"}


@PRODUCERS
def test_schedule_into_a_route_removed_registers_it_anew(
    connection: Connection, namespace: str, registry: Registry, scheduled: Schedules
) -> None:
    def removed() -> None:
        registry.remove_route(ROUTE, SHARDS)

    answers = scheduled(config_of(namespace), connection, [removed])
    assert {each.status for each in answers[1]} == {"accepted"}
    assert {each for each, _ in metas(connection, namespace)} == {
        registry.open_life(ROUTE, SHARDS).epoch.encode()
    }


@PRODUCERS
@pytest.mark.parametrize("fewer", [1, 3])
def test_schedule_into_a_route_made_anew_with_fewer_shards_is_refused_and_strands_nothing(
    connection: Connection, namespace: str, registry: Registry, scheduled: Schedules, fewer: int
) -> None:
    def made_anew() -> None:
        registry.remove_route(ROUTE, SHARDS)
        registry.open_route(ROUTE, fewer)

    for _ in range(2):  # and again, when it is asked again
        with pytest.raises(StoreUnfit, match=f"expected shards: {fewer}.* new route .* drain"):
            scheduled(config_of(namespace), connection, [made_anew])
        assert shard_keys(connection, namespace) == {
            Shard(namespace, ROUTE, number).key("meta") for number in range(fewer)
        }
        registry.remove_route(ROUTE, fewer)
    assert shard_keys(connection, namespace) == set()


def test_calls_of_a_client_with_other_shards_all_say_so_until_they_are_as_configured(
    connection: Connection, namespace: str, registry: Registry
) -> None:
    store = route_store(connection, namespace)
    registry.remove_route(ROUTE, SHARDS)
    registry.open_route(ROUTE, 2)
    for shard in store.shards:
        for call in (lambda shard: shard.cancel("a"), lambda shard: shard.claim(1, 9_000)):
            with pytest.raises(StoreUnfit, match="expected shards: 2"):
                call(shard)
    registry.remove_route(ROUTE, 2)
    registry.open_route(ROUTE, SHARDS)
    assert {shard.cancel("a") for shard in store.shards} == {"unknown"}


def test_worker_of_a_route_made_anew_delivers_what_the_new_life_has(
    connection: Connection, namespace: str, registry: Registry
) -> None:
    publisher = MemoryPublisher()
    config = config_of(namespace)
    runner = Runner(config, connection, {"here": publisher})
    producer = Producer(config, connection)
    runner.start()
    try:
        producer.schedule(ROUTE, b"1", delay="0s")
        assert publisher.deliveries_arrive(1, within_s=60)
        registry.remove_route(ROUTE, SHARDS)
        registry.open_route(ROUTE, SHARDS)
        for number in range(20):
            producer.schedule(ROUTE, b"2", delay="0s", id=f"id-{number}")
        assert publisher.deliveries_arrive(21, within_s=60)
    finally:
        runner.worker.drain(5)
        runner.worker.stop(10)
        runner._listener.close()


def test_route_that_is_being_removed_takes_nothing_and_nobody_opens_it(
    connection: Connection, namespace: str, registry: Registry
) -> None:
    store = route_store(connection, namespace)
    registry._leave(ROUTE, registry.lives()[ROUTE], "begin", 0, "")
    admin_of(connection).unlink(*store.shards[0].shard.keys())  # so far it has come
    for call in (
        lambda: store.shards[0].schedule([envelope("a")], max_delay_ms=10**9),
        lambda: route_store(connection, namespace),
    ):
        with pytest.raises(StoreUnfit, match="is being removed"):
            call()
    assert admin_of(connection).exists(*store.shards[0].shard.keys()) == 0
    registry.remove_route(ROUTE, SHARDS)
    route_store(connection, namespace)


def test_life_lost_with_a_shard_is_written_again_by_the_next_call(open_desk: Opened) -> None:
    desk = open_desk()
    life = life_of(desk)
    desk.client.delete(*desk.shard.keys())
    desk.pending("a")
    assert life_of(desk) == life
