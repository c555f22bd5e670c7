from collections.abc import Callable

import pytest

from duebridge.errors import RecordDamaged, RecordTooNew
from duebridge.ports.publisher import Reason
from duebridge.store.delay_store import DelayStore
from duebridge.store.wire.leases import Claim
from tests.store.conftest import Opened
from tests.support.desk import (
    LEASE_MS,
    NOW_MS,
    Desk,
    acks,
    burial,
    envelope,
    noted,
)


def test_claim_hands_out_the_record_and_the_content(desk: Desk) -> None:
    desk.ready(envelope("a", body=b"b", key=b"k", headers={"h": "v"}, remember="1h"))
    (leased,) = desk.store.claim(1, LEASE_MS).leased
    assert (leased.id, leased.content.body, leased.content.key) == ("a", b"b", b"k")
    assert (leased.record.due_at_ms, leased.record.scheduled_at_ms) == (NOW_MS + 1000, NOW_MS)
    assert leased.record.remember_ms == 3_600_000
    assert leased.flight == desk.flight_of("a")


def test_claim_of_nothing_is_empty_and_changes_nothing(desk: Desk) -> None:
    desk.pending("a")
    with desk.unchanged():
        claim = desk.store.claim(10, LEASE_MS)
        assert (claim.token, claim.leased, claim.damaged) == (b"", [], [])


def test_claim_gives_each_call_a_token_of_its_own(desk: Desk) -> None:
    desk.ready("a", "b")
    arguments = ("ready", 1, 1000, 1000, b"8 random", "", 0, 0)
    same_nonce = [desk.run("claim", *arguments)[1] for _ in "ab"]
    assert same_nonce[0] != same_nonce[1]
    assert [len(token) for token in same_nonce] == [12, 12]


def test_claim_under_a_token_goes_on_with_that_claim(desk: Desk) -> None:
    desk.ready("a", "b", "c")
    first = desk.store.claim(2, LEASE_MS)
    more = desk.store.claim(2, LEASE_MS, token=first.token)
    assert (more.token, more.ids) == (first.token, ["c"])
    whole = first.joined(more)
    assert (whole.token, whole.ids, whole.poll) == (first.token, ["a", "b", "c"], more.poll)
    assert desk.store.ack(acks(whole.token, *whole.ids)).stale == []


def test_claim_of_a_suspect_that_never_flew_marks_it_single(desk: Desk) -> None:
    desk.ready("a")
    desk.client.zadd(desk.key("suspect"), {"a": desk.clock()})
    desk.client.zrem(desk.key("ready"), "a")
    (leased,) = desk.store.claim(1, LEASE_MS, alone=True).leased
    assert leased.flight.attempt == 1
    desk.run_out()
    assert desk.flight_of("a").singles == 1


@pytest.mark.parametrize("has_dead_letter", [True, False])
def test_claim_of_what_has_expired_makes_it_dead(open_desk: Opened, has_dead_letter: bool) -> None:
    desk = open_desk(has_dead_letter=has_dead_letter)
    desk.pending(envelope("a", expires="2s"), envelope("b", expires="2001ms"), envelope("c"))
    desk.clock.advance(2000)
    claim = desk.claim_all()
    assert ([each.id for each in claim.leased], claim.expired) == (["b", "c"], 1)
    assert desk.state_of("a") == "dead"
    assert desk.score_of("a", "dead") == (desk.clock() if has_dead_letter else float("inf"))
    assert (desk.flight_of("a").reason, desk.flight_of("a").attempt) == (Reason.EXPIRED, 0)
    entry = desk.last_entry()
    assert (entry.kind, noted(entry)) == ("expired", [("a", (NOW_MS + 1000, 0, Reason.EXPIRED))])


HAND_OUTS: dict[str, Callable[[DelayStore], Claim]] = {
    "ready": lambda store: store.claim(10, LEASE_MS),
    "suspect": lambda store: store.claim(10, LEASE_MS, alone=True),
    "dead": lambda store: store.shunt(10, LEASE_MS),
}


@pytest.mark.parametrize("state", HAND_OUTS)
@pytest.mark.parametrize("how", ["ghost", "newer", 0, 1, 5, 38, 39, 45])
def test_hand_out_of_what_cannot_be_read_names_it_and_leases_the_others(
    desk: Desk, state: str, how: str | int
) -> None:
    desk.bring(state, "a", "b")
    desk.spoil("a", how)
    claims = [HAND_OUTS[state](desk.store) for _ in "ab"]
    assert [each.id for claim in claims for each in claim.leased] == ["b"]
    damaged = [(claim.token, each) for claim in claims for each in claim.damaged]
    if how == "ghost":
        assert (damaged, desk.state_of("a")) == ([], None)
    else:
        ((token, found),) = damaged
        expected = RecordTooNew if how == "newer" else RecordDamaged
        assert (found.id, type(found.error)) == ("a", expected)
        if state != "dead":
            assert desk.store.bury(token, [burial("a", Reason.POISON, failed=False)]).stale == []
        assert desk.state_of("a") == "dead"
    desk.check()


def test_claim_of_a_newer_layout_never_expires_it(desk: Desk) -> None:
    desk.ready(envelope("a", expires="2s"))
    desk.make_newer("a")
    desk.clock.advance(5000)
    claim = desk.store.claim(10, LEASE_MS)
    assert [each.id for each in claim.damaged] == ["a"]
    assert desk.state_of("a") == "unack"
    assert desk.store.release(claim.token, ["a"]).stale == []
    assert desk.state_of("a") == "ready"


def test_claim_of_a_damaged_record_can_run_out(desk: Desk) -> None:
    desk.ready("a", "b")
    desk.replaced_record("a", lambda record: record[:3])
    desk.store.claim(10, LEASE_MS)
    assert desk.run_out().ready == 2


@pytest.mark.parametrize(("count", "encoding"), [(32, "listpack"), (33, "hashtable")])
def test_claim_of_many_makes_a_table_of_the_flights(desk: Desk, count: int, encoding: str) -> None:
    claim = desk.unack(*[f"{number:02d}" for number in range(count)])
    flights = desk.key("flight")
    assert desk.client.object("encoding", flights).decode() == encoding
    assert desk.client.hlen(flights) == len(claim.ids) == count
