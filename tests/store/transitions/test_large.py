"""Large records: a call reads no more than it may, and small ones beside them come in batches."""

import os
import random
from collections.abc import Callable
from typing import Any

import pytest

from duebridge.ports.publisher import Reason
from duebridge.store.batching import CALL_BYTES, CALL_ROWS
from duebridge.store.delay_store import DelayStore
from duebridge.store.wire.leases import Claim
from duebridge.store.wire.transitions import KeptMessage
from tests.support.desk import LEASE_MS, Desk, acks, envelope

KIB = 1024
SINGLY = 512 * KIB  # lua/shared/record.lua: what a call reads record by record, and one more
LARGE = 256 * KIB  # two such records and a few bytes are more than that


def large(name: str, size: int = LARGE, **given: Any) -> Any:
    """An envelope whose body zstd cannot shrink."""
    return envelope(name, body=os.urandom(size), **given)


def largest(desk: Desk) -> int:
    return int(desk.client.hget(desk.key("meta"), "largest"))


# ── small ones after and beside a large one ─────────────────────────────────────────────────────


HAND_OUTS: dict[str, Callable[[DelayStore, int], Claim]] = {
    "ready": lambda store, bytes_: store.claim(CALL_ROWS, LEASE_MS, limit_bytes=bytes_),
    "dead": lambda store, bytes_: store.shunt(CALL_ROWS, LEASE_MS, limit_bytes=bytes_),
}


@pytest.mark.parametrize("state", HAND_OUTS)
@pytest.mark.parametrize(
    ("size", "limit_bytes"), [(600 * KIB, CALL_BYTES), (256 * KIB, 100 * KIB), (1300 * KIB, 10**9)]
)
def test_hand_out_of_small_ones_after_a_large_one_is_gone_is_one_batch(
    desk: Desk, state: str, size: int, limit_bytes: int
) -> None:
    ids = [f"{n:03d}" for n in range(CALL_ROWS)]
    desk.bring(state, large("large", size))
    desk.bring(state, *ids)
    hand_out = HAND_OUTS[state]
    first = hand_out(desk.store, limit_bytes)
    assert first.ids == ["large"]
    desk.store.ack(acks(first.token, "large"), shunted=state == "dead")
    rest = hand_out(desk.store, limit_bytes)
    assert rest.ids == ids


def test_claim_stops_before_a_large_one_and_begins_with_it_next(desk: Desk) -> None:
    for name in ("a", "b"):
        desk.ready(name)
    desk.ready(large("c", 600 * KIB))
    for name in ("d", "e"):
        desk.ready(name)
    claims = [desk.store.claim(CALL_ROWS, LEASE_MS, limit_bytes=CALL_BYTES) for _ in range(4)]
    assert [claim.ids for claim in claims] == [["a", "b"], ["c"], ["d", "e"], []]
    assert [claim.poll.ready for claim in claims] == [3, 2, 0, 0]


@pytest.mark.parametrize("name", ["schedule", "drop", "replay", "list"])
def test_call_over_small_ones_beside_a_record_of_more_than_a_mib_is_one(
    desk: Desk, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    ids = [f"{n:03d}" for n in range(100)]
    desk.pending(large("large", 1300 * KIB, delay="1h"))
    if name in ("drop", "replay"):
        desk.dead(*ids)
    called: list[str] = []
    monkeypatch.setattr(desk.connection, "observe", lambda name, _: called.append(name))
    if name == "schedule":
        desk.pending(*ids)
    elif name == "list":
        desk.pending(*ids)
        called.clear()
        assert [each.id for each in desk.store.list("pending", limit=100).entries] == ids
    else:
        assert len(set(getattr(desk.store, name)(ids))) == 1
    assert called == [name]


@pytest.mark.parametrize("connection", ["redis"], indirect=True)
@pytest.mark.parametrize("seed", range(6))
def test_claim_reads_its_bytes_or_a_few_and_one_record_at_most(desk: Desk, seed: int) -> None:
    draw = random.Random(seed)
    sizes = [draw.choice([50, 50, 50, 5 * KIB, 60 * KIB, 300 * KIB, 700 * KIB]) for _ in range(60)]
    desk.pending(*[large(f"{n:02d}", size) for n, size in enumerate(sizes)])
    desk.clock.advance(1000)
    desk.store.promote()
    stored = {name: desk.client.hstrlen(desk.key("envelopes"), name) for name in ready_ids(desk)}
    budget = draw.choice([KIB, 100 * KIB, CALL_BYTES, 10**9])
    most = max(min(budget, KIB * KIB), min(budget, SINGLY) + largest(desk))
    taken: list[str] = []
    with desk.client.monitor() as monitor:
        while ids := desk.store.claim(CALL_ROWS, LEASE_MS, limit_bytes=budget).ids:
            read = ids_read(monitor, desk.key("envelopes"))
            assert sum(stored[name] for name in read) <= most
            assert len(ids) == 1 or sum(stored[name] for name in ids) <= budget
            taken += ids
    assert taken == sorted(stored)


def ready_ids(desk: Desk) -> list[str]:
    return [name.decode() for name in desk.client.zrange(desk.key("ready"), 0, -1)]


def ids_read(monitor: Any, key: str) -> list[str]:
    """The ids whose records the last script read."""
    found: list[str] = []
    while True:
        words = monitor.next_command()["command"].split()
        if words[:2] == ["HMGET", key]:
            found += words[2:]
        if words[:2] == ["ZREMRANGEBYRANK", key.replace("envelopes", "ready")]:
            return found


KEPT = KeptMessage(envelope("b"), Reason.INVALID, "E\nno")


@pytest.mark.parametrize(
    "take_in", [lambda desk: desk.pending("b"), lambda desk: desk.store.keep([KEPT])]
)
def test_empty_shard_has_no_large_record(desk: Desk, take_in: Callable[[Desk], Any]) -> None:
    desk.pending(large("a"))
    assert largest(desk) > LARGE
    desk.store.cancel("a")
    take_in(desk)
    assert largest(desk) == desk.client.hstrlen(desk.key("envelopes"), "b")


def test_shard_with_a_large_record_has_it_until_it_is_empty(desk: Desk) -> None:
    desk.pending(large("a"))
    desk.pending("b")
    desk.store.cancel("b")
    desk.pending("c")
    assert largest(desk) == desk.client.hstrlen(desk.key("envelopes"), "a")
