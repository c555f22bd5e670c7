"""How a server is, and who listens: on each kind of server."""

import secrets
from pathlib import Path

import pytest

from duebridge.admin.doctor import vital_findings
from duebridge.errors import StoreUnavailable
from duebridge.ports.checks import Finding, Severity
from duebridge.store.connection import Connection, open_connection
from duebridge.store.fitness import Vitals, count_listeners, read_vitals
from duebridge.store.keys import Shard
from tests.store.servers import free_port, redis_server

HOUR_MS = 3_600_000
WELL = Vitals("Redis 7.0.15", 0, 10, 100, True, True, True)


def faults_of(**changed: object) -> list[Finding]:
    found = vital_findings(WELL._replace(**changed))
    return [each for each in found if each.severity is not Severity.OK]


def test_read_vitals_of_a_server_that_is_well(connection: Connection) -> None:
    vitals = read_vitals(connection)
    assert vitals.server.split()[0] in ("Redis", "Valkey")
    assert abs(vitals.clock_ahead_ms) < 1_000  # the same machine
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
    options = ("--maxmemory", "100mb", "--replicaof", f"127.0.0.1 {free_port()}")
    with redis_server(tmp_path, *options) as port:
        opened = open_connection(f"redis://127.0.0.1:{port}/0")
        vitals = read_vitals(opened)
        opened.close()
    assert (vitals.limit_bytes, vitals.is_limit_set) == (100 * 2**20, True)
    assert not vitals.is_primary


def test_read_vitals_without_a_server_raises_unavailable() -> None:
    opened = open_connection(f"redis://127.0.0.1:{free_port()}/0")
    with pytest.raises(StoreUnavailable):
        read_vitals(opened)


def test_count_listeners_tells_the_shards_apart(connection: Connection) -> None:
    route = f"test-{secrets.token_hex(6)}"
    shards = [Shard("n", route, number) for number in range(2)]
    assert count_listeners(connection, shards) == [0, 0]
    with connection.client.pubsub() as listener:
        listener.subscribe(shards[1].wake)
        assert listener.get_message(timeout=10) is not None
        assert count_listeners(connection, shards) == [0, 1]
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
