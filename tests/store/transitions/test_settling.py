"""What a worker says of what it holds: each settle alike, then what is its own."""

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from duebridge.errors import StoreError
from duebridge.ports.publisher import Reason
from duebridge.store.delay_store import DelayStore
from duebridge.store.wire.transitions import ERROR_BYTES, Burial
from tests.store.conftest import Opened
from tests.support.desk import (
    LEASE_MS,
    NOT_MINE,
    NOW_MS,
    Desk,
    acks,
    aside,
    burial,
    envelope,
    noted,
    postponed,
    remembering,
    retrying,
)

Settle = Callable[[DelayStore, bytes, Sequence[str]], Any]
OF_A_CLAIM: dict[str, Settle] = {
    "ack": lambda store, token, ids: store.ack(acks(token, *ids)),
    "retry": lambda store, token, ids: store.retry(
        token, [retrying(name, unsure=True, error="E\nx", clock="start") for name in ids]
    ),
    "release": lambda store, token, ids: store.release(token, ids),
    "bury": lambda store, token, ids: store.bury(token, burials(*ids)),
    "set_aside": lambda store, token, ids: store.set_aside(token, [aside(name) for name in ids]),
}
OF_A_SHUNT: dict[str, Settle] = {
    "shunted": lambda store, token, ids: store.ack(acks(token, *ids), shunted=True),
    "postpone": lambda store, token, ids: store.postpone(token, postponed(*ids), "t"),
}
SETTLES = OF_A_CLAIM | OF_A_SHUNT
EVERY = pytest.mark.parametrize("name", SETTLES)


def take(desk: Desk, name: str, *ids: str) -> Any:
    return desk.unack(*ids) if name in OF_A_CLAIM else desk.shunt(*ids)


def check_stale(desk: Desk, name: str, token: bytes, *ids: str) -> None:
    """Assert that a settle is stale, and changes nothing."""
    with desk.unchanged():
        assert SETTLES[name](desk.store, token, ids).stale == list(ids)


@EVERY
def test_settle_with_a_strange_token_is_stale_and_changes_nothing(desk: Desk, name: str) -> None:
    token = take(desk, name, "a", "b").token
    for strange in (NOT_MINE, bytes(12), b"", token[:-1], token + b"x"):
        check_stale(desk, name, strange, "a", "b", "nobody")


@EVERY
def test_settle_of_an_id_that_is_no_text_is_stale_and_gives_it_back(desk: Desk, name: str) -> None:
    token = take(desk, name, "a").token
    check_stale(desk, name, token, "damaged \udcff id", "é")


@EVERY
@pytest.mark.parametrize("state", ["pending", "ready", "suspect", "retry", "dead"])
def test_settle_with_zeros_for_a_token_changes_nothing_that_nobody_holds(
    desk: Desk, name: str, state: str
) -> None:
    desk.bring(state, "a")
    check_stale(desk, name, bytes(12), "a")


@EVERY
def test_settle_twice_is_stale_and_counts_once(desk: Desk, name: str) -> None:
    claim = take(desk, name, "a")
    assert SETTLES[name](desk.store, claim.token, ["a"]).stale == []
    check_stale(desk, name, claim.token, "a")


@EVERY
def test_settle_after_the_lease_went_to_another_leaves_that_one_alone(
    desk: Desk, name: str
) -> None:
    first = take(desk, name, "a")
    desk.run_out()
    is_claim = name in OF_A_CLAIM
    if is_claim:
        check_stale(desk, name, first.token, "a")
    second = desk.store.claim(1, LEASE_MS) if is_claim else desk.store.shunt(1, LEASE_MS)
    check_stale(desk, name, first.token, "a")
    assert desk.store.ack(acks(second.token, "a"), shunted=not is_claim).stale == []
    check_stale(desk, name, first.token, "a")


@pytest.mark.parametrize(
    ("name", "state", "kind"),
    [
        ("retry", "retry", "retried"),
        ("release", "ready", ""),
        ("bury", "dead", "dead"),
        ("set_aside", "retry", ""),
    ],
)
def test_settle_of_a_marked_one_removes_it_as_cancelled(
    desk: Desk, name: str, state: str, kind: str
) -> None:
    claim = desk.unack("a", "b")
    assert desk.store.cancel("a") == "in_flight"
    settled = SETTLES[name](desk.store, claim.token, ["a", "b"])
    assert (settled.stale, settled.marked) == ([], ["a"])
    assert (desk.state_of("a"), desk.state_of("b")) == (None, state)
    assert desk.journal()[-1] == ("cancelled", ["a"])
    assert not kind or desk.journal()[-2] == (kind, ["b"])


@EVERY
def test_settle_of_1000_of_the_longest_ids_is_one_step_and_1001_is_refused(
    desk: Desk, name: str
) -> None:
    ids = [f"{n:04d}{'x' * 251}" for n in range(1000)]
    claim = take(desk, name, *ids)
    with desk.unchanged(), pytest.raises(StoreError, match="LIMIT"):
        SETTLES[name](desk.store, claim.token, [*ids, "x"])
    assert SETTLES[name](desk.store, claim.token, ids).stale == []


def test_retry_of_each_waits_for_its_own_delay_and_counts_failures_alone(desk: Desk) -> None:
    claim = desk.unack("a", "b")
    retries = [retrying("a", 500, error="E\nno"), retrying("b", 1500, failed=False)]
    settled = desk.store.retry(claim.token, retries)
    assert (settled.stale, settled.poll.retry, settled.poll.unack) == ([], 2, 0)
    assert [desk.score_of(name, "retry") for name in "ab"] == [
        desk.clock() + ms for ms in (500, 1500)
    ]
    flights = [desk.flight_of(name) for name in "ab"]
    assert [(each.failures, each.retries, each.unsure) for each in flights] == [
        (1, 1, False),
        (0, 1, False),
    ]


def test_retry_keeps_the_first_and_the_last_failure(desk: Desk) -> None:
    first_at = desk.clock() + 1000
    desk.retry("a", error="First\nthe first")
    desk.clock.advance(1000)
    desk.put_back(desk.claim_all(), error="Second\nthe second\nof two lines")
    flight = desk.flight_of("a")
    assert (flight.first_failed_at_ms, flight.last_failed_at_ms) == (first_at, desk.clock())
    assert (flight.error_class, flight.error_message) == ("Second", "the second\nof two lines")
    desk.clock.advance(1000)
    desk.put_back(desk.claim_all(), failed=False)
    assert desk.flight_of("a").error_class == "Second"
    assert (desk.flight_of("a").failures, desk.flight_of("a").retries) == (2, 3)


def test_retry_of_a_long_error_text_cuts_it_so_that_it_can_be_read(desk: Desk) -> None:
    desk.retry("a", delay_ms=60_000, error="E\n" + "é\ud800\x00" * 1000)
    assert desk.flight_of("a").error_message.startswith("é")
    desk.retry("b", error="E\n" + "x" * 10_000)
    assert len(desk.flight_of("b").error_message) == ERROR_BYTES - 2


def test_retry_counters_stop_at_their_width(desk: Desk) -> None:
    desk.retry("a")
    packed = desk.flight_bytes("a")
    desk.client.hset(desk.key("flight"), "a", packed[:22] + b"\xff" * 4 + packed[26:])
    desk.clock.advance(1000)
    desk.put_back(desk.claim_all())
    assert (desk.flight_of("a").failures, desk.flight_of("a").retries) == (65535, 65535)


def burials(*ids: str, failed: bool = True, unsure: bool = False) -> list[Burial]:
    return [
        burial(name, Reason.TOO_LARGE, failed=failed, unsure=unsure, error="E\ntoo large")
        for name in ids
    ]


@pytest.mark.parametrize("reason", list(Reason))
def test_bury_keeps_why_in_flight_and_journal(desk: Desk, reason: Reason) -> None:
    due = desk.clock() + 1000
    desk.dead("a", reason=reason)
    flight = desk.flight_of("a")
    assert (flight.reason, flight.failures, flight.attempt) == (reason, 1, 1)
    assert (flight.error_class, flight.error_message) == ("E", "too large")
    assert flight.first_failed_at_ms == flight.last_failed_at_ms == desk.clock()
    entry = desk.last_entry()
    assert (entry.kind, noted(entry)) == ("dead", [("a", (due, 1, reason))])


@pytest.mark.parametrize("has_dead_letter", [True, False])
def test_bury_waits_for_a_shunt_or_for_ever(open_desk: Opened, has_dead_letter: bool) -> None:
    desk = open_desk(has_dead_letter=has_dead_letter)
    desk.dead("a")
    assert desk.score_of("a", "dead") == (desk.clock() if has_dead_letter else float("inf"))
    assert len(desk.store.shunt(1, LEASE_MS).leased) == has_dead_letter
    entry = desk.store.get("a")
    assert entry is not None
    assert (entry.score_ms == -1) == (not has_dead_letter)


def test_bury_counts_and_doubts_only_when_told(desk: Desk) -> None:
    claim = desk.unack("a", "b")
    desk.store.bury(claim.token, burials("a", failed=False) + burials("b", unsure=True))
    assert [desk.flight_of(name).failures for name in "ab"] == [0, 1]
    assert [desk.flight_of(name).unsure for name in "ab"] == [False, True]


def test_postpone_ends_the_lease_and_waits(desk: Desk) -> None:
    claim = desk.shunt("a", "b")
    settled = desk.store.postpone(claim.token, postponed("a"), "t")
    assert (settled.stale, settled.poll.dead) == ([], 2)
    assert desk.score_of("a", "dead") == desk.clock() + 5000
    assert not desk.flight_of("a").shunting
    assert desk.flight_of("b").shunting
    desk.clock.advance(4999)
    assert desk.store.shunt(10, LEASE_MS).leased == []
    desk.clock.advance(1)
    assert [each.id for each in desk.store.shunt(10, LEASE_MS).leased] == ["a"]


def test_release_gives_back_at_once_and_counts_nothing(desk: Desk) -> None:
    due = desk.clock() + 1000
    claim = desk.unack("a", "b")
    settled = desk.store.release(claim.token, ["a", "b"])
    assert (settled.stale, settled.poll.ready, settled.poll.unack) == ([], 2, 0)
    assert desk.score_of("a", "ready") == due
    flight = desk.flight_of("a")
    assert (flight.attempt, flight.failures, flight.retries, flight.expiries) == (1, 0, 0, 0)
    assert not flight.unsure
    desk.check()


def test_release_of_a_single_claim_goes_back_among_the_suspects(desk: Desk) -> None:
    desk.suspect("a")
    claim = desk.store.claim(1, LEASE_MS, alone=True)
    assert desk.store.release(claim.token, ["a"]).stale == []
    assert desk.state_of("a") == "suspect"
    desk.check()


def test_ack_is_journalled_with_due_and_attempt(desk: Desk) -> None:
    desk.retry("a")
    desk.clock.advance(1000)
    claim = desk.claim_all()
    desk.store.ack(acks(claim.token, "a"))
    entry = desk.last_entry()
    assert (entry.kind, entry.at_ms) == ("delivered", desk.clock())
    assert noted(entry) == [("a", (NOW_MS + 1000, 2, None))]


def test_ack_forgets_everything_of_an_envelope(desk: Desk) -> None:
    claim = desk.unack("a", "b")
    settled = desk.store.ack(acks(claim.token, "a", "b"))
    assert (settled.stale, settled.repeated, settled.poll.unack) == ([], False, 0)
    found = desk.check()
    left = {name for name, value in found.items() if value}
    assert left == {"meta", "journal"}, "an ack left orphans"


def test_ack_of_several_claims_takes_each_by_its_own_token(desk: Desk) -> None:
    first, second = desk.unack("a", "b"), desk.unack("c")
    settled = desk.store.ack(acks(first.token, "a", "b") + acks(second.token, "c"))
    assert (settled.stale, settled.poll.unack) == ([], 0)
    assert {name for name, value in desk.check().items() if value} == {"meta", "journal"}


def test_ack_of_several_claims_with_the_token_of_another_is_stale(desk: Desk) -> None:
    first, second = desk.unack("a", "b"), desk.unack("c")
    settled = desk.store.ack(acks(first.token, "a", "b", "c"))
    assert settled.stale == ["c"]
    settled = desk.store.ack(acks(first.token, "c") + acks(second.token, "nobody"))
    assert settled.stale == ["c", "nobody"]


def test_ack_of_mixed_ids_acks_what_it_holds(desk: Desk) -> None:
    claim = desk.unack("a", "b")
    assert desk.store.ack(acks(claim.token, "nobody", "a", "other")).stale == ["nobody", "other"]
    assert desk.journal()[-1] == ("delivered", ["a"])


def test_ack_of_a_marked_one_is_a_delivery(desk: Desk) -> None:
    claim = desk.unack("a")
    assert desk.store.cancel("a") == "in_flight"
    assert desk.store.ack(acks(claim.token, "a")).stale == []
    assert desk.journal()[-1] == ("delivered", ["a"])


def test_ack_of_a_dead_letter_ends_it_as_shunted(desk: Desk) -> None:
    claim = desk.shunt("a", "b")
    assert desk.store.ack(acks(claim.token, "a", "b"), shunted=True).stale == []
    assert desk.last_entry().kind == "shunted"
    assert [note.attempt for _, note in desk.last_entry().items] == [1, 1]
    assert {name for name, value in desk.check().items() if value} == {"meta", "journal"}


def test_ack_of_several_claims_remembers_each_id_with_its_own_hash(desk: Desk) -> None:
    kept = envelope("c", remember="1h")
    first, second = desk.unack("a", "b"), desk.unack(kept)
    desk.store.ack(remembering(first) + remembering(second))
    assert [each.status for each in desk.schedule("a", kept)] == ["accepted", "duplicate"]


def test_ack_of_1000_of_the_longest_ids_is_one_step(desk: Desk) -> None:
    ids = [f"{n:04d}{'x' * 251}" for n in range(1000)]
    claim = desk.unack(*[envelope(name, remember="1h") for name in ids])

    assert desk.store.ack(remembering(claim)).stale == []
    assert len(desk.check()["memory"]) == 1000
