"""Durability: calls wait for replicas, and what these did not confirm counts as not done."""

import secrets
from collections.abc import Callable, Iterator
from itertools import count
from typing import Any

import pytest

from duebridge.config.durability import DurabilityNeeds, ReplicaWait
from duebridge.config.models import Config
from duebridge.errors import Indeterminate, StoreUnavailable, StoreUnfit
from duebridge.ports.publisher import Reason
from duebridge.ports.source import LogPosition
from duebridge.store.delay_store import DelayStore
from duebridge.store.routing import RouteStore
from duebridge.store.server.connection import Connection, open_connection
from duebridge.store.server.durability import WAITING
from duebridge.store.server.fitness import check_fitness
from duebridge.store.wire.transitions import KeptMessage
from tests.store.conftest import Opened, leave_old_nodes_to_the_collector
from tests.support.desk import LEASE_MS, YEAR_MS, Desk, acks, aside, burial, envelope, retrying
from tests.support.redis.redis_sets import ClusterOfSix, redis_cluster_of_six
from tests.support.redis.replicas import Replicas, replicated
from tests.support.servers import wait_until

BOTH = ReplicaWait(replicas=2, timeout="100ms")  # type: ignore[arg-type]
ONE = ReplicaWait(replicas=1, timeout="500ms")  # type: ignore[arg-type]
# More than a configuration may ask for: a busy machine is not to be taken for a frozen replica.
SURE_ONE = ReplicaWait.model_construct(replicas=1, timeout=30_000)
SURE = ReplicaWait.model_construct(replicas=2, timeout=30_000)
SOCKET_TIMEOUT_S = 60.0  # beyond that
PLACE = LogPosition("log", 0, 7)


@pytest.fixture(scope="module", params=["redis", "valkey"])
def replicas(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Replicas]:
    """From 7.2 on, WAIT counts from the last write of its connection; Redis 7.0 from any."""
    home = tmp_path_factory.mktemp("replicas")
    with replicated(home, valkey=request.param == "valkey") as running:
        yield running


@pytest.fixture
def connection(replicas: Replicas) -> Iterator[Connection]:
    with open_connection(replicas.url, SOCKET_TIMEOUT_S).client as client:
        replicas.await_caught_up()
        yield Connection(client)


@pytest.fixture
def desk(open_desk: Opened) -> Desk:
    return open_desk(waits_for=SURE, cold_tier_ms=YEAR_MS)


def impatient(desk: Desk, **options: Any) -> DelayStore:
    return desk.again(waits_for=BOTH, **options)


Waiting = Callable[[DelayStore], object]
CALLS: dict[str, tuple[str, Waiting]] = {
    "schedule": ("", lambda store: store.schedule([envelope("a")], max_delay_ms=YEAR_MS)),
    "keep": ("", lambda store: store.keep([KeptMessage(envelope("a"), Reason.INVALID, "E\nno")])),
    "cancel": ("pending", lambda store: store.cancel("a")),
    "reschedule": ("pending", lambda store: store.reschedule("a", "+5000", YEAR_MS)),
    "demote": ("pending", lambda store: store.demote("batch", 0, [("a", 1)])),
    "mark": ("", lambda store: store.mark(["a"], 1, "")),
    "replay": ("dead", lambda store: store.replay(["a"])),
    "drop": ("dead", lambda store: store.drop(["a"])),
    "claim": ("ready", lambda store: store.claim(5, LEASE_MS)),
    "probe": ("set_aside", lambda store: store.probe("tag-of-t", LEASE_MS)),
    "shunt": ("dead", lambda store: store.shunt(5, LEASE_MS)),
}
LEASES = ("claim", "probe", "shunt")
SETTLEMENTS: dict[str, Callable[[DelayStore, bytes], object]] = {
    "ack": lambda store, token: store.ack(acks(token, "a")),
    "retry": lambda store, token: store.retry(token, [retrying("a")]),
    "set_aside": lambda store, token: store.set_aside(token, [aside("a")]),
    "release": lambda store, token: store.release(token, ["a"]),
    "bury": lambda store, token: store.bury(token, [burial("a")]),
}


def prepare(desk: Desk, state: str) -> None:
    if state:
        getattr(desk, state)("a")


def test_every_call_that_waits_has_a_test() -> None:
    assert set(CALLS) == WAITING


@pytest.mark.parametrize("name", CALLS)
def test_call_while_a_replica_is_frozen_is_indeterminate_and_later_confirmed(
    replicas: Replicas, desk: Desk, name: str
) -> None:
    state, call = CALLS[name]
    prepare(desk, state)
    with replicas.frozen(1), pytest.raises(Indeterminate, match="of 2 replicas") as refused:
        call(impatient(desk))
    assert refused.value.ids == (() if name in LEASES else ("a",))
    call(desk.store)


@pytest.mark.parametrize("name", LEASES)
def test_lease_that_replicas_did_not_confirm_is_given_back_uncounted(
    replicas: Replicas, desk: Desk, name: str
) -> None:
    state, call = CALLS[name]
    prepare(desk, state)
    with replicas.frozen(), pytest.raises(Indeterminate):
        call(impatient(desk))
    poll = desk.store.next()
    assert (poll.unack, poll.ready, poll.dead) == (0, int(state != "dead"), int(state == "dead"))
    leased = CALLS["shunt" if state == "dead" else "claim"][1](desk.store)
    assert leased.ids == ["a"]  # type: ignore[attr-defined]
    flight = desk.flight_of("a")
    assert (flight.failures if state != "dead" else 0, flight.expiries) == (0, 0)


@pytest.mark.parametrize("name", SETTLEMENTS)
def test_settlement_while_replicas_are_frozen_is_done_at_once(
    replicas: Replicas, desk: Desk, name: str
) -> None:
    claim = desk.unack("a")
    with replicas.frozen():
        SETTLEMENTS[name](impatient(desk), claim.token)
    assert desk.state_of("a") != "unack"


@pytest.mark.parametrize(("name", "answer"), [("schedule", "duplicate"), ("drop", "unknown")])
def test_call_that_has_nothing_left_to_do_is_not_confirmed_on_a_fresh_connection(
    replicas: Replicas, desk: Desk, name: str, answer: str
) -> None:
    state, call = CALLS[name]
    prepare(desk, state)
    with replicas.frozen():
        for _ in range(2):  # the second changes nothing, and its connection wrote nothing before
            other = open_connection(replicas.url)
            with pytest.raises(Indeterminate, match="of 2 replicas"):
                call(Desk(other, desk.shard.namespace, waits_for=BOTH).store)
            other.close()
    assert answer in str(call(desk.store))


@pytest.mark.parametrize(
    "again",
    [
        lambda store: store.schedule([envelope("a")], max_delay_ms=YEAR_MS, places=[PLACE]),
        lambda store: store.cancel("a", PLACE),
    ],
    ids=["schedule", "cancel"],
)
def test_call_of_a_place_taken_in_is_not_confirmed_on_a_fresh_connection(
    replicas: Replicas, desk: Desk, again: Waiting
) -> None:
    """Only the replicas' word on the mark lets the broker forget the message."""
    desk.schedule("a", places=[PLACE])
    other = open_connection(replicas.url)
    with replicas.frozen(), pytest.raises(Indeterminate, match="of 2 replicas"):
        again(Desk(other, desk.shard.namespace, waits_for=BOTH).store)
    other.close()
    assert "duplicate" in str(again(desk.store)) or desk.state_of("a") == "pending"


def test_cancel_answered_from_memory_on_a_fresh_connection_is_not_confirmed(
    replicas: Replicas, desk: Desk, connection: Connection
) -> None:
    desk.pending("a")
    calls = count(1)

    def forget_connection(*_: object) -> None:
        connection.client.connection_pool.disconnect()  # type: ignore[union-attr]
        if next(calls) == 3:
            raise Enough  # the second, which the store answered from memory, is asked again

    connection.observe = forget_connection
    with replicas.frozen(), pytest.raises(Enough):
        impatient(desk, repeat_for_s=SOCKET_TIMEOUT_S).cancel("a")


class Enough(Exception):
    """Ends a call that is repeated."""


def test_call_is_repeated_until_the_replicas_confirm(
    replicas: Replicas, desk: Desk, connection: Connection
) -> None:
    desk.pending("a")
    connection.observe = lambda name, _: replicas.resume()
    with replicas.frozen():
        assert impatient(desk, repeat_for_s=10.0).cancel("a") == "cancelled"


def test_unconfirmed_call_holds_up_no_other_call_of_the_connection(
    replicas: Replicas, desk: Desk
) -> None:
    with replicas.frozen():
        for _ in range(5):
            with pytest.raises(Indeterminate):
                impatient(desk).schedule([envelope("a")], max_delay_ms=YEAR_MS)
            assert desk.store.next().pending == 1


def test_waiting_call_after_script_flush_is_confirmed(desk: Desk, replicas: Replicas) -> None:
    desk.client.script_flush()
    desk.pending("a")
    desk.client.script_flush()
    with replicas.frozen(), pytest.raises(Indeterminate):
        impatient(desk).cancel("a")
    assert desk.state_of("a") is None


def test_full_store_still_takes_calls_that_wait_and_free_it(desk: Desk, replicas: Replicas) -> None:
    desk.ready("a")
    desk.pending("b")
    desk.client.config_set("maxmemory", 1)
    try:
        assert desk.store.claim(1, LEASE_MS).held == 1
        assert desk.store.cancel("b") == "cancelled"
    finally:
        desk.client.config_set("maxmemory", 0)


def test_user_without_the_right_to_wait_is_unfit(desk: Desk, replicas: Replicas) -> None:
    rights = ("on", ">x", "allkeys", "allchannels", "+@all", "-wait")
    desk.client.execute_command("ACL", "SETUSER", "hasty", *rights)
    hasty = open_connection(replicas.url.replace("//", "//hasty:x@"))
    with pytest.raises(StoreUnfit, match=r"refused us.*wait"):
        Desk(hasty, desk.shard.namespace, waits_for=BOTH).schedule("a")
    hasty.close()


# --- fitness ---


def test_check_fewer_replicas_than_are_connected_is_unfit_unless_allowed(
    connection: Connection,
) -> None:
    allowed = ("persistence",)
    assert len(check_fitness(connection, allowed, needs=DurabilityNeeds(replicas=2))) == 1
    assert len(check_fitness(connection, allowed, needs=DurabilityNeeds(replicas=3))) == 1
    with pytest.raises(StoreUnfit, match=r"replicas: expected .* all 2 replicas; got 1"):
        check_fitness(connection, allowed, needs=DurabilityNeeds(replicas=1))
    told = check_fitness(connection, (*allowed, "replicas"), needs=DurabilityNeeds(replicas=1))
    assert [each.partition(":")[0] for each in told] == ["persistence", "replicas"]


def test_check_server_that_does_not_sync_each_write_is_unfit_for_fsync(server: Connection) -> None:
    with pytest.raises(StoreUnfit, match=r"fsync: .*; got appendonly yes, appendfsync everysec"):
        check_fitness(server, needs=DurabilityNeeds(fsync=True))
    assert len(check_fitness(server, ("fsync",), needs=DurabilityNeeds(fsync=True))) == 1
    server.client.config_set("appendfsync", "always")
    assert check_fitness(server, needs=DurabilityNeeds(fsync=True)) == []
    server.client.config_set("appendonly", "no")
    with pytest.raises(StoreUnfit, match=r"persistence: .*; fsync: .*; got appendonly no"):
        check_fitness(server, needs=DurabilityNeeds(fsync=True))


def test_check_fsync_without_the_right_to_ask_is_unfit_unless_allowed(server: Connection) -> None:
    client: Any = server.client
    client.config_set("appendfsync", "always")
    client.execute_command("ACL", "SETUSER", "default", "-config")
    with pytest.raises(StoreUnfit, match=r"fsync: .* CONFIG GET is refused"):
        check_fitness(server, needs=DurabilityNeeds(fsync=True))
    assert len(check_fitness(server, ("fsync",), needs=DurabilityNeeds(fsync=True))) == 1


# --- a Cluster ---


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClusterOfSix]:
    # A frozen replica must not be taken for a dead one.
    home = tmp_path_factory.mktemp("six")
    with redis_cluster_of_six(home, node_timeout_ms=15_000) as running:
        yield running


@pytest.fixture
def spread(cluster: ClusterOfSix) -> Iterator[Connection]:
    cluster.await_whole()
    opened = open_connection(cluster.url.partition(",")[0], SOCKET_TIMEOUT_S, 10.0)
    yield opened
    opened.close()
    leave_old_nodes_to_the_collector()


def open_stores(
    cluster: ClusterOfSix, connection: Connection, wanted: ReplicaWait
) -> dict[int, DelayStore]:
    """A shard of each master, by its port."""
    written = {
        "target": {"broker": "m", "topic": "t"},
        "shards": 40,
        "durability": {"replicated": {"replicas": wanted.replicas}},
    }
    brokers = {"m": {"type": "memory"}}
    config = Config.model_validate({"version": 1, "brokers": brokers, "routes": {"route": written}})
    namespace = f"n-{secrets.token_hex(4)}"
    found: dict[int, DelayStore] = {}
    masters = len(cluster.masters())
    for store in RouteStore.open(connection, namespace, config.routes["route"]).shards:
        store._waits_for = wanted
        found.setdefault(cluster.owner_of(store.shard.tag).port, store)
        if len(found) == masters:
            break
    return found


def test_cluster_whose_owners_replica_is_frozen_is_indeterminate_and_others_are_not(
    cluster: ClusterOfSix, spread: Connection
) -> None:
    stores, hasty = (open_stores(cluster, spread, wanted) for wanted in (SURE_ONE, ONE))
    owners = [each for each in cluster.nodes if each.port in stores]
    for store in stores.values():
        store.schedule([envelope("warm")], max_delay_ms=YEAR_MS)
    for owner, (replica,) in [(each, cluster.replicas_of(each)) for each in owners]:
        replica.freeze()
        try:
            assert not is_confirmed(hasty[owner.port])
            assert all(is_confirmed(stores[port]) for port in stores if port != owner.port)
        finally:
            replica.resume()


def is_confirmed(store: DelayStore) -> bool:
    try:
        store.schedule([envelope("a")], max_delay_ms=YEAR_MS)
    except Indeterminate:
        return False
    return True


def test_cluster_follows_a_slot_and_still_waits_at_its_new_owner(
    cluster: ClusterOfSix, spread: Connection
) -> None:
    port, store = next(iter(open_stores(cluster, spread, SURE_ONE).items()))
    store.schedule([envelope("a", delay="0ms")], max_delay_ms=YEAR_MS)
    old = next(each for each in cluster.nodes if each.port == port)
    (new,) = cluster.replicas_of(old)
    new.ask("CLUSTER", "FAILOVER", "TAKEOVER")
    wait_until(lambda: cluster.replicas_of(new), "the old owner to follow the new one")
    cluster.await_whole()
    claim = store.claim(5, LEASE_MS, promote=5)
    assert claim.ids == ["a"]  # one claim, though the first node said MOVED
    store._waits_for = ONE
    old.freeze()
    try:
        with pytest.raises(Indeterminate, match="0 of 1 replicas"):
            store.cancel("a")
    finally:
        old.resume()


def test_cluster_that_moves_a_shard_is_away_until_the_slot_has_moved(
    cluster: ClusterOfSix, spread: Connection
) -> None:
    store, other, *_ = open_stores(cluster, spread, SURE_ONE).values()
    store.schedule([envelope("a")], max_delay_ms=YEAR_MS)
    to = cluster.owner_of(other.shard.tag)
    migration = cluster.begin_migration(store.shard.tag, to)
    migration.move_keys()
    with pytest.raises(StoreUnavailable, match=r"moves this shard|did not answer"):
        store.cancel("a")
    migration.end()
    assert store.cancel("a") == "cancelled"


def test_check_cluster_counts_the_replicas_of_each_master(spread: Connection) -> None:
    allowed = ("persistence",)
    assert len(check_fitness(spread, allowed, needs=DurabilityNeeds(replicas=1))) == 1
