"""Large records: a call reads no more than it may, and small ones beside them come in batches."""

import os
import random
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from duebridge.ports.publisher import Reason
from duebridge.ports.source import LogPosition
from duebridge.store.batching import CALL_BYTES, CALL_ROWS
from duebridge.store.delay_store import NO_CURSOR, DelayStore
from duebridge.store.wire.leases import Claim
from duebridge.store.wire.transitions import KeptMessage
from tests.support.desk import LEASE_MS, YEAR_MS, Desk, acks, aside, burial, envelope, retrying

KIB = 1024
SINGLY = 512 * KIB  # lua/shared/record.lua: what a call reads record by record, and one more
LARGE = 256 * KIB  # two such records and a few bytes are more than that
TAG = "tag-of-t"


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


# ── calls that read record by record ────────────────────────────────────────────────────────────


def cancelled_in_flight(desk: Desk, count: int) -> Claim:
    """Have so many large ones out that are to be remembered, and cancel them."""
    ids = [f"{n:02d}" for n in range(count)]
    desk.ready(*[large(name, remember="1h") for name in ids])
    claim = desk.store.claim(count, LEASE_MS)
    while len(claim.ids) < count:
        claim = claim.joined(desk.store.claim(count, LEASE_MS, token=claim.token))
    assert {desk.store.cancel(name) for name in ids} == {"in_flight"}
    return claim


def assert_cancelled(desk: Desk, ids: Sequence[str]) -> None:
    """Each is gone, journalled once and remembered."""
    told = [name for kind, names in desk.journal() if kind == "cancelled" for name in names]
    assert sorted(told) == sorted(ids)
    assert {desk.state_of(name) for name in ids} == {None}
    memory = set(desk.client.hkeys(desk.key("memory")))
    assert {f"r{name}".encode() for name in ids} <= memory


def test_reclaim_of_large_cancelled_ones_ends_a_few_a_call(desk: Desk) -> None:
    ids = cancelled_in_flight(desk, 7).ids
    desk.unack("small")
    desk.clock.advance(LEASE_MS)
    counts = [desk.store.reclaim()[1] for _ in range(5)]
    assert counts == [3, 2, 2, 1, 0]
    assert_cancelled(desk, ids)
    assert desk.state_of("small") == "ready"


SETTLEMENTS: dict[str, Callable[[DelayStore, Claim], Any]] = {
    "retry": lambda store, claim: store.retry(claim.token, [retrying(n) for n in claim.ids]),
    "release": lambda store, claim: store.release(claim.token, claim.ids),
    "bury": lambda store, claim: store.bury(claim.token, [burial(n) for n in claim.ids]),
    "set_aside": lambda store, claim: store.set_aside(claim.token, [aside(n) for n in claim.ids]),
}


@pytest.mark.parametrize("how", SETTLEMENTS)
def test_settlement_of_large_cancelled_ones_leaves_most_to_reclaim(desk: Desk, how: str) -> None:
    claim = cancelled_in_flight(desk, 5)
    reply = SETTLEMENTS[how](desk.store, claim)
    assert (reply.stale, reply.poll.unack, reply.poll.first_unack_ms) == ([], 3, desk.clock())
    desk.check()
    assert [desk.store.reclaim()[1] for _ in range(3)] == [2, 1, 0]
    assert_cancelled(desk, claim.ids)


def beside(desk: Desk, key: str, offset: int) -> str:
    """Store a large one beside a key that is on its way."""
    name = f"{key}~{offset}"
    given = large(name, remember="1h")
    place = LogPosition("log", 0, offset)
    options: dict[str, Any] = {"max_delay_ms": YEAR_MS, "primary_ids": [key]}
    (answer,) = desk.store.schedule([given], places=[place], **options)
    assert answer.status == "accepted"
    return name


def test_cancel_of_many_large_ones_beside_an_id_leaves_most_to_reclaim(desk: Desk) -> None:
    desk.unack("a")
    names = []
    for offset in range(1, 6):
        names.append(beside(desk, "a", offset))
        desk.clock.advance(1000)
        desk.put_back(desk.claim_all(), delay_ms=60_000, unsure=True)
    assert desk.store.cancel("a") == "in_flight"
    assert desk.store.next().unack == 4  # with the id itself
    desk.check()
    assert [desk.store.reclaim()[1] for _ in range(3)] == [2, 1, 0]
    assert_cancelled(desk, names)


def test_cancel_of_an_id_beside_large_ones_ends_the_id_at_once(desk: Desk) -> None:
    claim = desk.unack(large("a"))
    for offset in range(1, 4):
        beside(desk, "a", offset)
        desk.clock.advance(1000)
        desk.put_back(desk.claim_all(), delay_ms=60_000, unsure=True)
    desk.put_back(claim, delay_ms=60_000)
    assert desk.store.cancel("a") == "in_flight"
    assert (desk.state_of("a"), desk.state_of("a~1")) == (None, "unack")
    assert [each.status for each in desk.schedule("a")] == ["accepted"]


def test_replacement_of_large_ones_beside_their_ids_is_several_calls(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    desk.unack(*"abcde")
    names = [beside(desk, key, offset) for offset, key in enumerate("abcde", 1)]
    called: list[str] = []
    monkeypatch.setattr(desk.connection, "observe", lambda name, _: called.append(name))
    rows = [envelope(f"{key}~9", body=b"small") for key in "abcde"]
    places = [LogPosition("log", 0, 10 + n) for n in range(5)]
    answers = desk.schedule(*rows, places=places, primary_ids=list("abcde"))
    assert [each.status for each in answers] == ["replaced"] * 5
    assert called == ["schedule"] * 3
    assert [desk.store.get(name).content.body for name in names] == [b"small"] * 5


def test_new_content_of_ids_ends_large_ones_beside_them_in_reclaim(desk: Desk) -> None:
    claim = desk.unack(*"abc")
    names = [beside(desk, key, offset) for offset, key in enumerate("abc", 1)]
    desk.store.ack(acks(claim.token, *claim.ids))
    places = [LogPosition("log", 0, 10 + n) for n in range(3)]
    answers = desk.schedule(*"abc", places=places, mode="replace")
    assert [each.status for each in answers] == ["accepted"] * 3
    assert [desk.state_of(name) for name in names].count("unack") >= 2
    desk.check()
    desk.clock.advance(1000)
    assert desk.claim_all().ids == list("abc"), "what is beside them is never claimed"
    for _ in range(3):
        desk.store.reclaim()
    assert_cancelled(desk, names)


def test_probe_buries_a_few_large_expired_ones_a_call_and_finds_the_live_one(desk: Desk) -> None:
    ids = [f"{n:02d}" for n in range(5)]
    desk.set_aside(*[large(name, expires="30s") for name in ids[:2]], delay_ms=60_000)
    for name in ids[2:]:
        desk.set_aside(large(name, expires="30s"), delay_ms=60_000)
    desk.set_aside("live", delay_ms=60_000)
    desk.clock.advance(40_000)
    expired, cursor, claim = [], NO_CURSOR, None
    while claim is None or not claim.held:
        claim, after = desk.store.probe(TAG, LEASE_MS, 1000, cursor)
        expired.append(claim.expired)
        assert after is not None or claim.held
        cursor = after or NO_CURSOR
    assert claim.ids == ["live"]
    assert expired == [2, 2, 1]
