"""What a failover between nodes whose clocks are two seconds apart does to due instants.

Scripts read their own node's clock; here each node is given one, and the second is promoted.
"""

from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest
import redis

from duebridge.store.server.connection import open_connection
from tests.support.desk import LEASE_MS, NOW_MS, Desk, acks
from tests.support.servers import AT_ONCE, redis_server

APART_MS = 2000
DELAY_MS = 1000  # of the desk's envelopes
AHEAD_AND_BEHIND = pytest.mark.parametrize("apart_ms", [APART_MS, -APART_MS])

Promote = Callable[[int], Desk]


@pytest.fixture
def nodes(tmp_path: Path) -> Iterator[tuple[Desk, Promote]]:
    """A desk at the master; and one at its replica, promoted with a clock so far from it."""
    homes = [tmp_path / name for name in ("master", "replica")]
    for each in homes:
        each.mkdir()
    with (
        redis_server(homes[0], *AT_ONCE) as first,
        redis_server(homes[1], "--replicaof", f"127.0.0.1 {first}", *AT_ONCE) as second,
        closing(open_connection(f"redis://127.0.0.1:{first}")) as old,
        closing(open_connection(f"redis://127.0.0.1:{second}")) as new,
    ):
        master = Desk(old, "clocks")

        def promote(apart_ms: int) -> Desk:
            assert master.client.wait(1, 10_000) == 1
            with redis.Redis(port=second) as replica:  # which `new` would refuse until then
                replica.replicaof("NO", "ONE")
            promoted = Desk(new, "clocks")
            promoted.clock.now_ms = master.clock() + apart_ms
            return promoted

        yield master, promote


def claimed(desk: Desk) -> list[str]:
    claim = desk.store.claim(10, LEASE_MS, promote=10)
    return [each.id for each in claim.leased]


@AHEAD_AND_BEHIND
def test_claim_after_a_promotion_waits_for_the_new_nodes_clock(
    nodes: tuple[Desk, Promote], apart_ms: int
) -> None:
    """In true time an envelope comes so much sooner or later as the clocks are apart."""
    master, promote = nodes
    master.pending("a")
    promoted = promote(apart_ms)
    promoted.clock.now_ms = NOW_MS + DELAY_MS - 1
    assert claimed(promoted) == []
    promoted.clock.advance(1)
    assert claimed(promoted) == ["a"]


@AHEAD_AND_BEHIND
def test_schedule_after_a_promotion_counts_a_delay_from_the_new_nodes_clock(
    nodes: tuple[Desk, Promote], apart_ms: int
) -> None:
    promoted = nodes[1](apart_ms)
    (answer,) = promoted.schedule("a")
    assert answer.due_at_ms == NOW_MS + apart_ms + DELAY_MS


def test_reclaim_by_a_clock_ahead_ends_a_lease_sooner_and_the_late_ack_is_stale(
    nodes: tuple[Desk, Promote],
) -> None:
    """Sooner by what the clocks are apart: a copy at most, and the token tells who is late."""
    master, promote = nodes
    lease = master.unack("a")
    promoted = promote(APART_MS)
    promoted.clock.now_ms = master.clock() + LEASE_MS - 1
    assert promoted.store.reclaim().moved == 0
    promoted.clock.advance(1)
    assert promoted.store.reclaim().moved == 1
    assert promoted.store.ack(acks(lease.token, "a")).stale == ["a"]
    assert promoted.store.get("a") is not None


def test_ack_by_a_clock_behind_is_taken_whatever_the_lease_says(
    nodes: tuple[Desk, Promote],
) -> None:
    master, promote = nodes
    lease = master.unack("a")
    promoted = promote(-APART_MS)
    assert promoted.store.ack(acks(lease.token, "a")).stale == []
    assert promoted.store.get("a") is None
