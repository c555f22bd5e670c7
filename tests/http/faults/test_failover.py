"""The store fails over while requests are on their way: 0 lost, nothing twice under one key."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeAlias

import pytest

from tests.http.faults.posting import ORDERS, Posted, posting
from tests.support.redis.redis_sets import SentinelSet, sentinel_set
from tests.support.servers import wait_until
from tests.support.serving import CONFIG, NDJSON, Served, serving

REPLICATED = {"replicated": {"replicas": 2, "timeout": "1s"}}
WITHIN_S = 60.0

Break: TypeAlias = Callable[[SentinelSet, Posted], None]


@pytest.fixture(scope="module")
def running_set(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SentinelSet]:
    home = tmp_path_factory.mktemp("set")
    with sentinel_set(home, "--appendonly", "yes") as running:
        yield running


@pytest.fixture
def servers(running_set: SentinelSet) -> SentinelSet:
    running_set.await_whole()
    return running_set


@pytest.fixture
def replicated(servers: SentinelSet, tmp_path: Path) -> Iterator[Served]:
    """A server on the set, whose receipts mean that both replicas have the envelope."""
    orders = {**CONFIG["routes"]["orders"], "durability": REPLICATED}
    config = {**CONFIG, "routes": {"orders": orders}}
    with serving(tmp_path / tmp_path.name, servers.url, config) as served:
        yield served


def switch(servers: SentinelSet, _: Posted) -> None:
    """Promote a replica while the old master lives."""
    servers.fail_over()


def kill(servers: SentinelSet, posted: Posted) -> None:
    """Kill the master; it comes back once a client was told of it, as a replica."""
    old = servers.kill_master()
    wait_until(lambda: posted.with_status(503), "a 503: a replica is missing", WITHIN_S)
    old.start()


@pytest.mark.parametrize("break_it", [pytest.param(switch, marks=pytest.mark.long), kill])
def test_failover_amid_posts_loses_nothing_and_stores_nothing_twice(
    replicated: Served, servers: SentinelSet, break_it: Break
) -> None:
    with posting(replicated, at_least=100) as posted:
        wait_until(lambda: len(posted.answers) > 20, "some answers")
        break_it(servers, posted)
        before = len(posted.with_status(201))
        wait_until(lambda: len(posted.with_status(201)) > before + 20, "the new set", WITHIN_S)
    assert replicated.bodies() == sorted(posted.names), "0 lost, nothing twice"
    for away in posted.with_status(503):
        assert int(away.headers["retry-after"]) >= 1
        assert len(away.json()["ids"]) == 1, "what may have been stored is named"
    receipts = {each.json()["id"] for each in posted.with_status(201)}
    assert receipts == replicated.stored().keys()


def test_stream_that_meets_a_failover_and_comes_again_stores_each_line_once(
    replicated: Served, servers: SentinelSet
) -> None:
    names = [f"n-{number}" for number in range(600)]
    lines = [json.dumps({"body": name, "delay": "1h"}).encode() + b"\n" for name in names]
    headers, old = {**NDJSON, "Idempotency-Key": "stream"}, servers.master()

    def as_the_master_dies() -> Iterator[bytes]:
        yield b"".join(lines[:300])
        wait_until(lambda: len(replicated.bodies()) == 300, "the first half")
        old.kill()
        yield b"".join(lines[300:])

    def sent(content: bytes | Iterator[bytes]) -> list[str]:
        answer = client.post(ORDERS, content=content, headers=headers)
        assert answer.status_code in (200, 503), answer.text
        if answer.status_code == 503:
            return []
        return [json.loads(each)["status"] for each in answer.text.splitlines()]

    with replicated.client() as client:
        assert sent(as_the_master_dies()) == ["accepted"] * 300 + ["unavailable"] * 300
        servers.await_master_after(old)
        old.start()
        whole = ["accepted"] * len(names)
        wait_until(lambda: sent(b"".join(lines)) == whole, "all receipts, as at first", WITHIN_S)
    assert replicated.bodies() == sorted(names), "0 lost, nothing twice"
