"""A server is fit for the store, its figures are read, its routes and keys are known."""

import time
from contextlib import closing
from pathlib import Path

import pytest
import redis
from redis.crc import key_slot

from duebridge.admin.checks.store_checks import check_fit, vital_findings
from duebridge.config.fields import checked_name
from duebridge.config.load import load_config_text
from duebridge.errors import ConfigError, StoreUnavailable, StoreUnfit
from duebridge.ports.checks import Finding, Severity
from duebridge.store.keys import SHARD_KEYS, Shard, epochs_key, routes_key
from duebridge.store.registry import Registry
from duebridge.store.server import fitness
from duebridge.store.server.connection import Connection, open_connection
from duebridge.store.server.fitness import Vitals, check_fitness, count_listeners, read_vitals
from duebridge.store.wakeup import WakeListener
from duebridge.store.wire.record import NEWEST_LAYOUT
from tests.store.conftest import Opened
from tests.support.desk import Desk
from tests.support.servers import free_port, redis_server, wait_until


def test_check_embedded_server_is_fit(server: Connection) -> None:
    assert check_fitness(server) == []


def test_check_names_everything_that_is_unfit_at_once(server: Connection) -> None:
    server.client.config_set("maxmemory-policy", "allkeys-lru")
    server.client.config_set("appendonly", "no")
    with pytest.raises(StoreUnfit) as refusal:
        check_fitness(server)
    text = str(refusal.value)
    assert "eviction: expected maxmemory-policy noeviction" in text
    assert "got allkeys-lru" in text
    assert "persistence: expected appendonly yes" in text


def test_check_server_of_another_kind_is_unfit(redis_url: str) -> None:
    with closing(open_connection(redis_url)) as other:
        other.client.set_response_callback("INFO", lambda *_, **__: {"redis_version": "soon"})
        with pytest.raises(StoreUnfit, match=r"INFO as Redis or Valkey gives it; got .*soon"):
            check_fitness(other)


def test_check_server_that_reads_its_data_is_unavailable_not_unfit(tmp_path: Path) -> None:
    persisted = ("--appendonly", "yes", "--enable-debug-command", "yes")
    with redis_server(tmp_path, *persisted) as port, redis.Redis(port=port) as client:
        client.execute_command("DEBUG", "POPULATE", 20_000)
        client.bgrewriteaof()
        wait_until(lambda: not client.info("persistence")["aof_rewrite_in_progress"], "the file")
    slowly = ("--key-load-delay", "500", "--loading-process-events-interval-bytes", "1024")
    with redis_server(tmp_path, *persisted, *slowly) as port:
        connection = open_connection(f"redis://127.0.0.1:{port}")
        with pytest.raises(StoreUnavailable, match="loading its data"):
            check_fitness(connection)
        connection.close()


def test_check_unfit_that_is_allowed_by_name_is_only_told(server: Connection) -> None:
    server.client.config_set("maxmemory-policy", "volatile-ttl")
    with pytest.raises(StoreUnfit):
        check_fitness(server, ("persistence",))
    assert len(check_fitness(server, ("eviction",))) == 1


@pytest.mark.parametrize(
    ("version", "name", "is_offered"), [("6.2.14", "version", False), ("7.0.15", "eviction", True)]
)
def test_check_offers_to_allow_only_what_could_then_run(
    version: str, name: str, is_offered: bool, redis_url: str
) -> None:
    info = {"redis_version": version, "maxmemory_policy": "allkeys-lru", "aof_enabled": 1}
    with closing(open_connection(redis_url)) as other:
        other.client.set_response_callback("INFO", lambda *_, **__: info)
        with pytest.raises(StoreUnfit, match=name) as refused:
            check_fitness(other)
        found = {
            each.found: each.remedy for each in check_fit(load_config_text(CONFIG, "c"), other)
        }
    assert ("allow_unfit" in str(refused.value)) is is_offered
    (remedy,) = (remedy for fault, remedy in found.items() if REFUSED[name] in fault)
    assert ("allow_unfit" in remedy) is is_offered


CONFIG = "{version: 1, brokers: {m: {type: memory}}, routes: {r: {target: {broker: m, topic: t}}}}"
REFUSED = {"version": "or newer", "eviction": "noeviction"}
HOUR_MS = 3_600_000
WELL = Vitals("Redis 7.0.15", 0, 10, 100, True, True, True)


def faults_of(**changed: object) -> list[Finding]:
    found = vital_findings(WELL._replace(**changed))
    return [each for each in found if each.severity is not Severity.OK]


def test_read_vitals_of_a_server_that_is_well(connection: Connection) -> None:
    began = time.monotonic()
    vitals = read_vitals(connection)
    took_ms = 1000 * (time.monotonic() - began)
    assert vitals.server.split()[0] in ("Redis", "Valkey")
    assert abs(vitals.clock_ahead_ms) <= took_ms + 2  # the same machine
    assert 0 < vitals.used_bytes < vitals.limit_bytes
    assert (vitals.is_limit_set, vitals.is_primary, vitals.is_append_only_written) == (
        False,
        True,
        True,
    )


def test_read_vitals_measures_the_clock_against_ours(connection: Connection) -> None:
    ours_ms = connection.client.time()[0] * 1000 - HOUR_MS
    ahead_ms = read_vitals(connection, lambda: ours_ms).clock_ahead_ms
    assert HOUR_MS <= ahead_ms < HOUR_MS + 60_000


def test_read_vitals_of_a_replica_with_a_limit_tells_both(tmp_path: Path) -> None:
    with redis_server(tmp_path, "--maxmemory", "100mb") as port:
        opened = open_connection(f"redis://127.0.0.1:{port}/0")
        opened.client.replicaof("127.0.0.1", free_port())  # a new connection would be refused
        vitals = read_vitals(opened)
        opened.close()
    assert (vitals.limit_bytes, vitals.is_limit_set) == (100 * 2**20, True)
    assert not vitals.is_primary


def test_count_listeners_tells_the_shards_apart(connection: Connection, namespace: str) -> None:
    shards = [Shard(namespace, "route", number) for number in range(2)]
    assert count_listeners(connection, shards) == [0, 0]
    # A worker of a former version listens as on one server, wherever its client connects.
    with connection.client.pubsub() as former:
        former.subscribe(shards[1].wake)
        assert former.get_message(timeout=10) is not None
        assert count_listeners(connection, shards) == [0, 1]
        with closing(WakeListener(connection, {shards[0]: list})) as listener:
            listener.start()
            wait_until(lambda: count_listeners(connection, shards) == [1, 1], "the listener")
    assert count_listeners(connection, []) == []


@pytest.mark.parametrize(
    ("changed", "severity", "found"),
    [
        ({"clock_ahead_ms": 1_001}, "warning", "clock is 1001ms ahead of this machine's"),
        ({"clock_ahead_ms": -HOUR_MS}, "warning", "clock is 1h behind this machine's"),
        ({"used_bytes": 80}, "warning", "80 % of maxmemory"),
        ({"used_bytes": 85, "is_limit_set": False}, "warning", "85 % of the memory of its machine"),
        ({"used_bytes": 101}, "failure", "it refuses new envelopes"),
        ({"is_primary": False}, "failure", "is a replica"),
        ({"is_append_only_written": False}, "failure", "could not write its append-only file"),
    ],
)
def test_findings_of_a_server_that_is_not_well(
    changed: dict[str, object], severity: str, found: str
) -> None:
    (finding,) = faults_of(**changed)
    assert finding.severity == severity
    assert found in finding.found
    assert finding.remedy


def test_findings_of_a_server_at_its_bounds_are_ok() -> None:
    assert faults_of(clock_ahead_ms=-1_000, used_bytes=79) == []


def test_keys_of_a_shard_share_one_hash_tag() -> None:
    shard = Shard("space", "route", 3)
    assert shard.keys()[0] == "{space:route:3}:pending"
    assert len(shard.keys()) == len(SHARD_KEYS) == len(set(shard.keys()))
    keys = shard.keys()
    assert len({key_slot(key.encode()) for key in keys}) == 1
    assert shard.wake == shard.keys()[12], "where lua/shared/prelude.lua has it"


@pytest.mark.parametrize("name", ["a", "A-b_c.9", "0", "x" * 128])
def test_checked_name_of_a_good_name_returns_it(name: str) -> None:
    assert checked_name("route", name) == name


@pytest.mark.parametrize(
    "name", ["", "-a", ".a", "_a", "a b", "a:b", "{a}", "a}", "a/b", "é", "a\n", "x" * 129]
)
def test_checked_name_of_a_bad_name_is_refused_with_what_came(name: str) -> None:
    with pytest.raises(ConfigError) as refused:
        checked_name("route", name)
    assert str(refused.value).startswith("route: expected 1 to 128 letters, digits")
    assert repr(name) in str(refused.value)


def test_script_touches_no_key_of_another_shard(open_desk: Opened) -> None:
    desk, other = open_desk(), open_desk()
    other.suspect("a")
    other.dead("b")
    with other.unchanged():
        live_through_everything(desk)
    pattern = f"*{desk.shard.namespace}*"
    found = {key.decode() for key in desk.client.scan_iter(match=pattern, count=10_000)}
    space = desk.shard.namespace
    assert found <= {*desk.shard.keys(), routes_key(space), epochs_key(space)}


def live_through_everything(desk: Desk) -> None:
    desk.suspect("a")
    desk.dead("b")
    desk.retry("c", delay_ms=60_000)
    desk.unack("d")
    desk.pending("e")
    desk.store.reschedule("e", "+5", 1000)
    desk.store.cancel("e")
    desk.store.replay(["b"])
    desk.clock.advance(60_000)
    desk.store.reclaim()
    desk.store.forget()


def test_server_older_than_the_least_is_refused_by_its_version(
    valkey: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(fitness.LEAST, "Valkey", (99, 0))
    with pytest.raises(StoreUnfit, match=r"version: expected Valkey 99\.0 or newer; got \d+\."):
        check_fitness(valkey)
    (told,) = check_fitness(valkey, ("version",))
    assert told.startswith("version: ")


def test_route_with_a_newer_record_layout_is_refused_and_left_as_it_is(valkey: Connection) -> None:
    key = routes_key("newer")
    valkey.client.hset(key, "r", f"{NEWEST_LAYOUT + 1}:1")
    with pytest.raises(StoreUnfit, match="upgrade duebridge"):
        Registry(valkey, "newer").open_route("r", 1)
    assert valkey.client.hget(key, "r") == b"%d:1" % (NEWEST_LAYOUT + 1)
