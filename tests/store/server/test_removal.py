"""A route is removed: one life of it, whole, by one of those who try."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from duebridge.config.durability import ReplicaWait
from duebridge.envelope import Envelope
from duebridge.errors import Indeterminate, StoreUnavailable, StoreUnfit
from duebridge.store.delay_store import DelayStore
from duebridge.store.keys import Shard, epochs_key, purged_key
from duebridge.store.purges import PurgeLog
from duebridge.store.registry import RegisteredRoute, Registry
from duebridge.store.server.connection import Connection, open_connection
from duebridge.store.server.scripts import Script, script
from tests.store.conftest import keys_of
from tests.support.redis.least import admin_of
from tests.support.redis.replicas import Replicas, replicated

SHARDS = 3
BOTH = ReplicaWait(replicas=2, timeout="200ms")  # type: ignore[arg-type]
SURE = ReplicaWait.model_construct(replicas=2, timeout=30_000)


@pytest.fixture
def registry(connection: Connection, namespace: str) -> Registry:
    """Two routes, each with an envelope on every shard."""
    registry = Registry(connection, namespace)
    for route in ("over", "kept"):
        begin_anew(registry, connection, namespace, route)
    return registry


def test_remove_route_leaves_no_key_of_it_and_every_other(
    registry: Registry, connection: Connection, namespace: str
) -> None:
    kept = {key for key in keys_of(connection, namespace) if ":over:" not in key}
    registry.remove_route("over", SHARDS)
    assert keys_of(connection, namespace) == {*kept, purged_key(namespace)}
    assert registry.routes() == {"kept": RegisteredRoute(1, SHARDS)}


def test_remove_route_interrupted_is_found_and_removed_again(
    registry: Registry, connection: Connection, namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    interrupt_removal(registry, connection, monkeypatch, after=0)
    assert "over" in registry.routes()
    with pytest.raises(StoreUnfit, match="being removed"):
        registry.open_route("over", SHARDS)
    assert registry.remove_route("over", SHARDS)
    assert registry.remove_route("kept", SHARDS)
    assert keys_of(connection, namespace) == {purged_key(namespace)}
    assert [each.route for each in PurgeLog(connection, namespace).after()] == ["over", "kept"]


@pytest.mark.parametrize("after", range(SHARDS + 1))
def test_remove_route_repeated_journals_what_the_first_attempt_found(
    registry: Registry,
    connection: Connection,
    namespace: str,
    monkeypatch: pytest.MonkeyPatch,
    after: int,
) -> None:
    interrupt_removal(registry, connection, monkeypatch, after=after)
    assert registry.remove_route("over", SHARDS, SHARDS - after)  # what the second one finds
    (found,) = PurgeLog(connection, namespace).after()
    assert found.envelopes == SHARDS


def test_remove_route_journals_what_producers_added_since_it_was_counted(
    registry: Registry, connection: Connection, namespace: str
) -> None:
    assert registry.remove_route("over", SHARDS, 1)
    (found,) = PurgeLog(connection, namespace).after()
    assert found.envelopes == SHARDS


def interrupt_removal(
    registry: Registry, connection: Connection, patch: pytest.MonkeyPatch, *, after: int
) -> None:
    """Begin to remove the route `over`; stop after so many of its shards."""
    run, left = connection.run, iter(range(after))

    def interrupted(called: Script, *asked: Any) -> Any:
        is_shard = called is script("registry/remove")
        is_end = called is script("registry/leave") and "finish" in asked[1]
        if (is_shard or is_end) and next(left, None) is None:
            raise StoreUnavailable("interrupted")
        return run(called, *asked)

    with patch.context() as patched:
        patched.setattr(connection, "run", interrupted)
        with pytest.raises(StoreUnavailable, match="interrupted"):
            registry.remove_route("over", SHARDS, SHARDS)


@pytest.mark.parametrize("overtaken_at", ["before", "begun", "ending"])
def test_remove_route_that_another_removed_meanwhile_leaves_the_next_life(
    registry: Registry,
    connection: Connection,
    namespace: str,
    monkeypatch: pytest.MonkeyPatch,
    overtaken_at: str,
) -> None:
    leave, rival, life = registry._leave, Registry(connection, namespace), registry.lives()["over"]

    def make_anew(at: str) -> None:
        if at == overtaken_at:
            rival.remove_route("over", SHARDS)
            begin_anew(rival, connection, namespace)

    def overtaken(*asked: Any) -> Any:
        is_end = "finish" in asked
        make_anew("ending" if is_end else "before")
        answer = leave(*asked)
        make_anew("" if is_end else "begun")
        return answer

    monkeypatch.setattr(registry, "_leave", overtaken)
    assert not registry.remove_route("over", SHARDS, life=life)
    assert waiting(connection, namespace) == SHARDS
    assert rival.open_life("over", SHARDS).epoch != life
    assert len(list(PurgeLog(connection, namespace).after())) == 1


def test_remove_route_of_a_shard_that_lost_its_life_removes_it_too(
    registry: Registry, connection: Connection, namespace: str
) -> None:
    for number, epoch in enumerate((None, "earlier")):
        meta = Shard(namespace, "over", number).key("meta")
        admin_of(connection).hdel(meta, "epoch")
        if epoch is not None:
            admin_of(connection).hset(meta, "epoch", epoch)
    assert registry.remove_route("over", SHARDS)
    assert not [key for key in keys_of(connection, namespace) if ":over:" in key]


def test_remove_route_whose_removal_an_earlier_version_began_ends_it(
    registry: Registry, connection: Connection, namespace: str
) -> None:
    admin_of(connection).hset(epochs_key(namespace), "over", "-")
    assert registry.lives() == {"over": "", "kept": registry.lives()["kept"]}
    assert registry.remove_route("over", SHARDS, life="")
    assert list(registry.routes()) == list(registry.lives()) == ["kept"]
    assert waiting(connection, namespace) == 0


# --- what replicas confirm ---


@pytest.fixture(scope="module")
def replicas(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Replicas]:
    with replicated(tmp_path_factory.mktemp("replicas"), valkey=True) as running:
        yield running


@pytest.fixture
def fresh(replicas: Replicas) -> Iterator[Callable[[], Connection]]:
    """Opens connections that have written nothing yet."""
    with ExitStack() as stack:

        def opened() -> Connection:
            connection = open_connection(replicas.url, 60.0)
            stack.callback(connection.close)
            return connection

        yield opened


@pytest.fixture
def life(fresh: Callable[[], Connection], replicas: Replicas) -> str:
    """A life of the route `over` that the replicas have; its epoch."""
    replicas.primary.ask("FLUSHALL")
    begin_anew(Registry(fresh(), "ns"), fresh(), "ns")
    replicas.await_caught_up()
    return Registry(fresh(), "ns").lives()["over"]


def test_remove_route_that_replicas_did_not_confirm_is_refused_until_they_do(
    replicas: Replicas, fresh: Callable[[], Connection], life: str
) -> None:
    with replicas.frozen(1):
        for _ in range(2):  # the second finds its beginning written
            with pytest.raises(Indeterminate, match="1 of 2 replicas"):
                Registry(fresh(), "ns", removal_waits_for=BOTH).remove_route("over", SHARDS)
    assert waiting(fresh(), "ns") == SHARDS
    assert Registry(fresh(), "ns", removal_waits_for=SURE).remove_route("over", SHARDS, life=life)
    for each in replicas.replicas:  # they may be promoted
        assert not [key for key in each.ask("KEYS", "{ns*") if key != purged_key("ns").encode()]


@pytest.mark.parametrize("step", ["registry/remove", "registry/leave"])
def test_remove_route_that_loses_its_replicas_amid_it_is_indeterminate(
    replicas: Replicas,
    fresh: Callable[[], Connection],
    life: str,
    monkeypatch: pytest.MonkeyPatch,
    step: str,
) -> None:
    connection = fresh()
    run = connection.run

    def losing(called: Script, keys: Any, given: Any, *rest: Any) -> Any:
        if called is script(step) and "begin" not in given:
            replicas.replicas[0].freeze()
        return run(called, keys, given, *rest)

    monkeypatch.setattr(connection, "run", losing)
    with replicas.frozen(0), pytest.raises(Indeterminate, match="1 of 2 replicas"):
        Registry(connection, "ns", removal_waits_for=BOTH).remove_route("over", SHARDS, life=life)
    Registry(fresh(), "ns").remove_route("over", SHARDS, life=life)


def test_remove_shard_that_is_gone_on_a_fresh_connection_is_not_confirmed(
    replicas: Replicas, fresh: Callable[[], Connection], life: str
) -> None:
    def remove() -> int:
        registry = Registry(fresh(), "ns", removal_waits_for=BOTH)
        return registry._removed(Shard("ns", "over", 0), life.encode(), life.encode())

    with replicas.frozen():
        for _ in range(2):
            with pytest.raises(Indeterminate, match="0 of 2 replicas"):
                remove()
    Registry(fresh(), "ns").remove_route("over", SHARDS, life=life)


def begin_anew(
    registry: Registry, connection: Connection, namespace: str, route: str = "over"
) -> None:
    """Register a route, and accept an envelope on every shard."""
    registry.open_route(route, SHARDS)
    for number in range(SHARDS):
        store = DelayStore(connection, Shard(namespace, route, number))
        store.schedule([Envelope.new(b"body", delay="1h")], max_delay_ms=10**9)


def waiting(connection: Connection, namespace: str) -> int:
    """The number of envelopes of the route `over`."""
    shards = [Shard(namespace, "over", number) for number in range(SHARDS)]
    return sum(admin_of(connection).hlen(each.key("envelopes")) for each in shards)
