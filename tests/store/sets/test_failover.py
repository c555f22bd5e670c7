"""Failovers of a Sentinel set and a Cluster: claims go on, nobody waits for another's node."""

import itertools
import secrets
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from functools import partial

import pytest

from duebridge.bench.meter import CallCounter, Meter
from duebridge.errors import StoreUnavailable
from duebridge.store.batching import SharedRate
from duebridge.store.delay_store import DelayStore
from duebridge.store.keys import Shard, routes_key
from duebridge.store.life import RouteLife
from duebridge.store.registry import Registry
from duebridge.store.server.connection import Connection, open_connection
from duebridge.store.server.fitness import (
    check_fitness,
    count_listeners,
    fitness_faults,
    read_info,
    read_vitals,
    silent_nodes,
)
from duebridge.store.wakeup import WakeListener
from tests.store.sets.traffic import RESUMED_WITHIN_S, WITHIN_S, Pulse, flowing
from tests.support.desk import DAY_MS, envelope
from tests.support.redis.redis_node import RedisNode
from tests.support.redis.redis_sets import (
    ClusterOfSix,
    SentinelSet,
    redis_cluster_of_six,
    sentinel_set,
)
from tests.support.running_clock import ends_within
from tests.support.servers import wait_until

TIMEOUT_S = 1.0


@pytest.fixture(scope="module")
def running_set(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SentinelSet]:
    with sentinel_set(tmp_path_factory.mktemp("set")) as running:
        yield running


@pytest.fixture
def servers(running_set: SentinelSet) -> SentinelSet:
    running_set.await_whole()
    return running_set


@pytest.fixture(scope="module")
def running_six(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClusterOfSix]:
    with redis_cluster_of_six(tmp_path_factory.mktemp("six")) as running:
        yield running


@pytest.fixture
def six(running_six: ClusterOfSix) -> ClusterOfSix:
    running_six.await_whole()
    return running_six


@contextmanager
def shards_at(url: str, count: int = 12) -> Iterator[tuple[Connection, list[DelayStore]]]:
    with closing(open_connection(url, TIMEOUT_S, WITHIN_S)) as connection:
        connection.load_scripts(WITHIN_S)
        route = f"failover-{count}"
        life = RouteLife(Registry(connection, "n"), route, count, registers=True)
        yield (
            connection,
            [DelayStore(connection, Shard("n", route, n), life=life) for n in range(count)],
        )


KILLS: dict[str, tuple[Callable[[RedisNode], None], Callable[[RedisNode], None]]] = {
    "killed": (RedisNode.kill, RedisNode.start),
    "frozen": (RedisNode.freeze, RedisNode.resume),
}


@pytest.mark.parametrize("fault", ["killed", pytest.param("frozen", marks=pytest.mark.long)])
def test_claims_go_on_after_the_master_of_a_sentinel_set_is_gone(
    servers: SentinelSet, fault: str
) -> None:
    strike, mend = KILLS[fault]
    with shards_at(servers.url, 1) as (_, stores), flowing(*stores) as (traffic,):
        old = servers.master()
        strike(old)
        try:
            servers.await_master_after(old)
            traffic.resumes()
        finally:
            mend(old)
        servers.await_whole()
        traffic.await_claim()


def test_former_master_is_left_while_it_still_takes_writes(servers: SentinelSet) -> None:
    with shards_at(servers.url, 1) as (_, (store,)), flowing(store) as (traffic,):
        old = servers.master()
        with never_demoted(old):
            new = servers.fail_over()
            key = store.shard.key("meta")
            before = generation(new, key)
            wait_until(lambda: generation(new, key) > before, "writes to the new master")
            assert old.role() == "master", "it was demoted before: nothing is shown"
        traffic.await_claim()


@contextmanager
def never_demoted(server: RedisNode) -> Iterator[None]:
    """Let a server refuse the Sentinels' order to follow another, which comes after 8 s or so."""
    server.ask("ACL", "SETUSER", "default", "-replicaof", "-slaveof")
    try:
        yield
    finally:
        server.ask("ACL", "SETUSER", "default", "+@all")


def generation(server: RedisNode, key: str) -> int:
    return int(server.ask("HGET", key, "generation") or 0)


def test_listener_hears_again_after_a_failover(servers: SentinelSet) -> None:
    with shards_at(servers.url, 1) as (connection, (store,)):
        assert_heard_after(connection, store, servers.fail_over)


def assert_heard_after(
    connection: Connection, store: DelayStore, fault: Callable[[], object]
) -> None:
    """Expect a hint to be heard before a fault, and again after it."""
    heard = threading.Event()
    dues = iter(range(DAY_MS, 0, -10_000))  # sooner than those before, however late it comes

    def is_heard() -> bool:
        heard.clear()
        try:
            if count_listeners(connection, [store.shard]) != [1]:
                return False
            given = envelope(secrets.token_hex(6), f"{next(dues)}ms")
            store.schedule([given], max_delay_ms=DAY_MS)
        except StoreUnavailable:
            return False
        return heard.wait(0.5)

    listener = WakeListener(connection, {store.shard: heard.set})
    listener.start()
    try:
        wait_until(is_heard, "a hint", WITHIN_S)
        fault()
        wait_until(is_heard, "a hint after the fault", WITHIN_S)
    finally:
        listener.close()


def test_shards_of_a_route_spread_over_the_masters_of_a_cluster(six: ClusterOfSix) -> None:
    with shards_at(six.url) as (connection, stores):
        nodes = [connection.node_of(store.shard.wake) for store in stores]
    assert len(set(nodes)) == 3
    assert all(nodes.count(node) < 8 for node in nodes)


@pytest.mark.parametrize("fault", ["killed", pytest.param("frozen", marks=pytest.mark.long)])
def test_claims_go_on_after_a_master_of_a_cluster_is_gone_and_never_stop_elsewhere(
    six: ClusterOfSix, fault: str
) -> None:
    strike, mend = KILLS[fault]
    with shards_at(six.url) as (_, stores):
        hit, others = apart(six, stores)
        healthy = [six.owner_of(store.shard.wake) for store in others]
        with flowing(hit, *others) as (traffic, *unhurt), closing(Pulse(healthy)) as pulse:
            old, struck_at = six.owner_of(hit.shard.wake), time.monotonic()
            strike(old)
            try:
                six.await_owner_after(old, hit.shard.wake)
                traffic.resumes()
                gaps = [each.longest_gap_s(struck_at) for each in unhurt]
                most_s = pulse.longest_wait_s()
            finally:
                mend(old)
            assert max(gaps) < most_s, "a shard of a healthy node waited for another's"
            assert traffic.longest_gap_s(struck_at) > 1.0, "a failover takes longer"


def apart(six: ClusterOfSix, stores: Sequence[DelayStore]) -> tuple[DelayStore, list[DelayStore]]:
    """Return a shard, and one of each other master."""
    by_node = {six.owner_of(store.shard.wake).port: store for store in stores}
    first, *others = by_node.values()
    return first, others


def test_open_beside_a_node_that_just_died_needs_a_seed_alone(six: ClusterOfSix) -> None:
    with shards_at(six.url) as (_, stores):
        hit, (other, _) = apart(six, stores)
        old, seed = six.owner_of(hit.shard.wake), six.owner_of(other.shard.wake)
        old.kill()
        for _ in range(12):  # enough to ask each of the six nodes, were they asked at random
            with closing(open_connection(f"redis+cluster://127.0.0.1:{seed.port}")) as opened:
                assert opened.node_of(other.shard.wake).endswith(f":{seed.port}")
        six.await_owner_after(old, hit.shard.wake)
    old.start()


def test_loop_over_shards_waits_once_for_a_frozen_node(six: ClusterOfSix) -> None:
    with shards_at(six.url) as (_, stores):
        hit, (other, _) = apart(six, stores)
        master = six.owner_of(hit.shard.wake)
        frozen = [master, *six.replicas_of(master)]  # nobody is promoted, however long it takes
        hit.next()
        for each in frozen:
            each.freeze()
        try:
            waited = [wait_for_turn(hit, other) for _ in range(50)]
        finally:
            for each in frozen:
                each.resume()
    assert waited[0] > TIMEOUT_S / 2
    assert sum(each > TIMEOUT_S / 2 for each in waited) < 10, "each of 50 waited"


def wait_for_turn(away: DelayStore, well: DelayStore) -> float:
    """Ask a shard that is away, then one that is well; return how long the latter waited."""
    began = time.monotonic()
    with pytest.raises(StoreUnavailable):
        away.next()
    waited = time.monotonic() - began
    well.next()
    return waited


def test_slot_on_its_way_holds_up_its_own_shard_alone(six: ClusterOfSix) -> None:
    with shards_at(six.url) as (_, stores):
        moving, others = apart(six, stores)
        source = six.owner_of(moving.shard.wake)
        beside = [s for s in stores if s is not moving and six.owner_of(s.shard.wake) is source]
        nodes = [source, *(six.owner_of(store.shard.wake) for store in others)]
        flow = flowing(moving, *beside[:1], *others)
        with flow as (traffic, *unhurt), closing(Pulse(nodes)) as pulse:
            moving.schedule([envelope("kept", "1h")], max_delay_ms=DAY_MS)
            to = six.owner_of(others[0].shard.wake)
            began = time.monotonic()
            migration = six.begin_migration(moving.shard.wake, to)
            migration.move_keys(1)
            with pytest.raises(StoreUnavailable):
                moving.next()
            for each in unhurt:
                each.await_claim()
            migration.end()
            traffic.await_claim()
            assert moving.get("kept") is not None
            gaps = [each.longest_gap_s(began) for each in unhurt]
            assert max(gaps) < pulse.longest_wait_s()
        assert six.owner_of(moving.shard.wake) is to


def test_listener_of_a_cluster_hears_again_after_a_failover(six: ClusterOfSix) -> None:
    with shards_at(six.url, 1) as (connection, (store,)):
        old = six.owner_of(store.shard.wake)
        assert_heard_after(connection, store, lambda: six.fail_over(old))


@pytest.mark.parametrize("kind", ["sentinel", "cluster"])
def test_figures_of_a_set_are_those_of_its_masters(
    kind: str, request: pytest.FixtureRequest
) -> None:
    masters = {"sentinel": 1, "cluster": 3}[kind]
    servers = request.getfixturevalue({"sentinel": "servers", "cluster": "six"}[kind])
    with shards_at(servers.url) as (connection, stores):
        calls = CallCounter()
        meter = Meter(connection, calls)
        before = meter.read()
        for store in stores:
            store.next()
        assert meter.read().since(before).all_calls >= len(stores)
        assert meter.dataset_bytes() > 0
        offset_ms, uncertainty_ms = meter.clock_offset_ms()
        assert abs(offset_ms) <= uncertainty_ms
        assert len(read_info(connection, "server", "memory")) == masters
        assert read_vitals(connection).is_primary
        assert set(fitness_faults(connection)) == {"persistence"}


def test_route_opened_while_a_node_is_away_is_there_for_others_and_later_for_its_shards(
    six: ClusterOfSix,
) -> None:
    registry, route = six.owner_of(routes_key("n")), f"new-{secrets.token_hex(4)}"
    node = next(each for each in six.masters() if each is not registry)
    numbers = [each for each in range(12) if six.owner_of(Shard("n", route, each).wake) is node]
    with away(six, node), closing(open_connection(six.url, TIMEOUT_S, WITHIN_S)) as connection:
        check_fitness(connection, ("persistence",), WITHIN_S)
        assert [name.rpartition(":")[2] for name in silent_nodes(connection)] == [str(node.port)]
        connection.load_scripts()
        stores = opened_stores(connection, route, 12)
        hit = [stores[each] for each in numbers]
        for store in set(stores) - set(hit):
            wait_until(partial(is_taken, store), "a node that is well", WITHIN_S)
        assert not is_taken(hit[0])
        node.resume()
        for store in hit:
            wait_until(partial(is_taken, store), "the node to be back", WITHIN_S)


@contextmanager
def away(six: ClusterOfSix, node: RedisNode) -> Iterator[None]:
    """Freeze a master whose replica is gone, so that nobody takes its place."""
    (replica,) = six.replicas_of(node)
    replica.kill()
    node.freeze()
    try:
        yield
    finally:
        node.resume()
        replica.start()


def opened_stores(connection: Connection, route: str, shards: int) -> list[DelayStore]:
    life = RouteLife(Registry(connection, "n"), route, shards, registers=True)
    assert life.look() == shards
    return [DelayStore(connection, Shard("n", route, each), life=life) for each in range(shards)]


def is_taken(store: DelayStore) -> bool:
    try:
        (reply,) = store.schedule([envelope("a")], max_delay_ms=DAY_MS)
    except StoreUnavailable:
        return False
    return reply.status in ("accepted", "duplicate")


@pytest.mark.parametrize("off_by_ms", [DAY_MS, -DAY_MS])
def test_clock_of_a_cluster_is_that_of_its_node_farthest_off(
    six: ClusterOfSix, off_by_ms: int
) -> None:
    def now_ms() -> int:  # asked before and after each node: the last one's clock is another
        return time.time_ns() // 1_000_000 - (off_by_ms if next(asked) >= 4 else 0)

    asked = itertools.count()
    with closing(open_connection(six.url, TIMEOUT_S, WITHIN_S)) as connection:
        found_ms = read_vitals(connection, now_ms).clock_ahead_ms
    assert abs(found_ms - off_by_ms) < DAY_MS // 2


@pytest.mark.parametrize("kind", ["sentinel", "cluster"])
def test_pace_counts_on_after_a_failover(kind: str, request: pytest.FixtureRequest) -> None:
    servers = request.getfixturevalue({"sentinel": "servers", "cluster": "six"}[kind])
    with closing(open_connection(servers.url, TIMEOUT_S, WITHIN_S)) as connection:
        pace = SharedRate(connection, "n", "run", 1000)
        wait_until(lambda: takes(pace), "the pace", WITHIN_S)
        if kind == "sentinel":
            servers.fail_over()
        else:
            servers.fail_over(servers.owner_of("{n}"))
        with ends_within(RESUMED_WITHIN_S):
            wait_until(lambda: takes(pace), "the pace to go on", WITHIN_S)


def takes(pace: SharedRate) -> bool:
    try:
        return pace.take(1).units == 1
    except StoreUnavailable:
        return False
