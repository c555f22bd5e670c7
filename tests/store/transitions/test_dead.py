"""What becomes of the dead: shunted to their target, postponed, replayed, dropped; and kept."""

import os
from collections.abc import Callable
from typing import Any

import pytest

from duebridge.errors import StoreError
from duebridge.ports.publisher import Reason
from duebridge.store.batching import answers_of
from duebridge.store.wire.transitions import KeptMessage, Postponement
from tests.support.desk import (
    LEASE_MS,
    NOW_MS,
    Desk,
    acks,
    envelope,
    noted,
)

ENDS = pytest.mark.parametrize(("end", "done"), [("replay", "replayed"), ("drop", "dropped")])
NO = "E\ntoo large"
ERROR = "EnvelopeError\nx-delay: no"


@ENDS
def test_end_of_the_dead_refuses_while_a_shunt_holds_it(desk: Desk, end: str, done: str) -> None:
    claim = desk.shunt("a")
    desk.clock.advance(LEASE_MS - 1)
    with desk.unchanged():
        assert getattr(desk.store, end)(["a"]) == ["in_flight"]
    desk.clock.advance(1)
    assert getattr(desk.store, end)(["a", "a"]) == [done, "unknown"]
    with desk.unchanged():
        assert desk.store.ack(acks(claim.token, "a"), shunted=True).stale == ["a"]


@ENDS
@pytest.mark.parametrize("state", ["pending", "ready", "suspect", "unack", "retry"])
def test_end_of_the_living_is_unknown_and_changes_nothing(
    desk: Desk, end: str, done: str, state: str
) -> None:
    desk.bring(state, "a")
    with desk.unchanged():
        assert getattr(desk.store, end)(["a", "nobody"]) == ["unknown", "unknown"]


@ENDS
def test_end_of_1000_dead_is_one_step_and_1001_is_refused(desk: Desk, end: str, done: str) -> None:
    ids = [f"{n:04d}" for n in range(1000)]
    desk.dead(*ids)
    with desk.unchanged(), pytest.raises(StoreError, match="LIMIT"):
        getattr(desk.store, end)([*ids, "x"])
    assert getattr(desk.store, end)(ids) == [done] * 1000


LARGE: dict[str, tuple[str, Callable[[Desk], Any], Any, int]] = {
    "replay": ("dead", lambda desk: [*answers_of("abcdef", desk.store.replay)], "replayed", 6),
    "drop": ("dead", lambda desk: [*answers_of("abcdef", desk.store.drop)], "dropped", 2),
    "schedule": (
        "pending",
        lambda desk: desk.schedule(*"abcdef", mode="replace"),
        ("replaced", NOW_MS + 1000),
        6,
    ),
}


@pytest.mark.parametrize("name", LARGE)
def test_call_over_large_envelopes_is_several_short_ones(
    desk: Desk, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    state, call, answer, calls = LARGE[name]
    for each in "abcdef":
        desk.bring(state, envelope(each, body=os.urandom(300_000)))
    called: list[str] = []
    monkeypatch.setattr(desk.connection, "observe", lambda name, _: called.append(name))
    assert call(desk) == [answer] * 6
    assert called == [name] * calls


def test_shunt_leases_inside_dead(desk: Desk) -> None:
    claim = desk.shunt("a")
    assert desk.state_of("a") == "dead"
    assert desk.score_of("a", "dead") == desk.clock() + LEASE_MS
    (leased,) = claim.leased
    assert (leased.id, leased.content.body) == ("a", b"body of a")
    assert (leased.flight.shunting, leased.flight.attempt) == (True, 1)
    assert leased.flight.error_message == "too large"
    assert claim.poll.first_dead_ms == desk.clock() + LEASE_MS


def test_shunt_takes_no_more_bytes_than_asked(desk: Desk) -> None:
    desk.dead(*"abcde")
    largest = int(desk.client.hget(desk.key("meta"), "largest"))
    assert len(desk.store.shunt(5000, LEASE_MS, limit_bytes=3 * largest).leased) == 3


def test_replay_schedules_a_dead_envelope_anew(desk: Desk) -> None:
    desk.dead("a", "b")
    generation = desk.record_of("a").generation
    assert desk.store.replay(["a", "b"], [0, 5000]) == ["replayed", "replayed"]
    assert desk.score_of("a", "pending") == desk.record_of("a").due_at_ms == desk.clock()
    assert desk.score_of("b", "pending") == desk.record_of("b").due_at_ms == desk.clock() + 5000
    assert desk.record_of("a").generation > generation
    kind, ids = desk.journal()[-1]
    assert (kind, ids) == ("replayed", ["a", "b"])
    assert [note.due_at_ms for _, note in desk.last_entry().items] == [
        desk.clock(),
        desk.clock() + 5000,
    ]


def test_replay_keeps_the_attempt_and_resets_the_rest(desk: Desk) -> None:
    desk.dead("a")
    desk.store.replay(["a"])
    flight = desk.flight_of("a")
    assert (flight.attempt, flight.failures, flight.retries, flight.reason) == (1, 0, 0, 0)
    assert (flight.first_failed_at_ms, flight.error_message) == (0, "")
    (leased,) = desk.claim_all().leased
    assert (leased.flight.attempt, leased.content.body) == (2, b"body of a")


def test_replay_keeps_scheduled_remember_hash_and_blob(desk: Desk) -> None:
    desk.dead(envelope("a", remember="1h"))
    before = desk.record_of("a")
    desk.store.replay(["a"], [700])
    after = desk.record_of("a")
    for field in ("scheduled_at_ms", "remember_ms", "content_hash", "blob"):
        assert getattr(after, field) == getattr(before, field)


@pytest.mark.parametrize("spoil", ["newer", "ghost"])
def test_replay_of_what_cannot_be_read_changes_nothing(desk: Desk, spoil: str) -> None:
    desk.dead("a")
    desk.spoil("a", spoil)
    with desk.unchanged():
        assert desk.store.replay(["a"]) == ["unknown"]


def test_replay_of_a_dead_one_that_no_target_takes(open_desk) -> None:
    desk = open_desk(has_dead_letter=False)
    desk.dead("a")
    assert desk.store.replay(["a"]) == ["replayed"]


def test_drop_deletes_the_dead_for_good(desk: Desk) -> None:
    due = desk.clock() + 1000
    desk.dead("a", "b")
    assert desk.store.drop(["a", "b"]) == ["dropped", "dropped"]
    assert {name for name, value in desk.check().items() if value} == {"meta", "journal"}
    entry = desk.last_entry()
    assert (entry.kind, noted(entry)[0]) == ("dropped", ("a", (due, 1, None)))


def test_drop_of_a_ghost_clears_it_away(desk: Desk) -> None:
    desk.dead("a")
    desk.lose_record("a")
    assert desk.store.drop(["a"]) == ["dropped"]
    desk.check()


def test_replay_of_poison_starts_with_no_expiry(desk: Desk) -> None:
    desk.suspect("a")
    desk.store.claim(1, LEASE_MS, alone=True)
    desk.run_out(poison=1)
    assert desk.flight_of("a").reason == Reason.POISON
    desk.store.replay(["a"])
    flight = desk.flight_of("a")
    assert (flight.expiries, flight.singles) == (0, 0)
    assert flight.unsure, "it may still have been delivered"
    desk.check()


def test_replay_lifts_an_expiry_that_has_passed(desk: Desk) -> None:
    desk.pending(envelope("a", expires="1001ms"), envelope("b", expires="1001ms"))
    desk.clock.advance(1001)
    assert desk.claim_all().leased == []
    desk.clock.advance(1)
    assert desk.store.replay(["a", "b"], [0, 10]) == ["replayed", "replayed"]
    assert desk.record_of("a").expires_at_ms == 0
    assert [each.id for each in desk.claim_all().leased] == ["a"]
    desk.clock.advance(10)
    assert [each.id for each in desk.claim_all().leased] == ["b"]


@pytest.mark.parametrize(
    ("postponement", "letters", "error"),
    [
        (Postponement("a", 5000, NO), 1, NO),
        (Postponement("a", None, NO), 1, NO),
        (Postponement("a", 0), 0, ""),
    ],
)
def test_postpone_counts_a_try_and_keeps_why_the_envelope_died(
    desk: Desk, postponement: Postponement, letters: int, error: str
) -> None:
    claim = desk.shunt("a")
    before = desk.flight_of("a")
    desk.store.postpone(claim.token, [postponement], "t")
    flight = desk.flight_of("a")
    assert (flight.letters, flight.letter_error) == (letters, error)
    assert (flight.error_message, flight.reason) == (before.error_message, before.reason)
    assert (flight.failures, flight.attempt, flight.held_since_ms) == (1, 1, 0)


def test_postpone_counts_on_over_many_tries_and_a_replay_begins_anew(desk: Desk) -> None:
    desk.dead("a")
    for _ in range(3):
        claim = desk.store.shunt(1, LEASE_MS)
        assert desk.store.postpone(claim.token, [Postponement("a", 0, NO)], "t").stale == []
    assert desk.flight_of("a").letters == 3
    assert desk.store.replay(["a"]) == ["replayed"]
    assert (desk.flight_of("a").letters, desk.flight_of("a").letter_error) == (0, "")


def test_postpone_of_a_rejected_one_is_never_due_again(desk: Desk) -> None:
    claim = desk.shunt("a", "b")
    desk.store.postpone(claim.token, [Postponement("a", None, NO), Postponement("b", 0)], "t")
    assert desk.store.next().first_dead_ms == desk.clock()
    desk.clock.advance(365 * 86_400_000)
    assert desk.store.shunt(10, LEASE_MS).ids == ["b"]


def test_postpone_of_a_claim_is_stale(desk: Desk) -> None:
    claim = desk.unack("a")
    with desk.unchanged():
        assert desk.store.postpone(claim.token, [Postponement("a", None, NO)], "t").stale == ["a"]


def test_postpone_of_a_ghost_is_forgotten_by_the_next_shunt(desk: Desk) -> None:
    claim = desk.shunt("a", "b")
    desk.lose_record("a")
    desk.store.postpone(claim.token, [Postponement("a", 0), Postponement("b", 0)], "t")
    assert desk.store.shunt(10, LEASE_MS).ids == ["b"]
    assert (desk.state_of("a"), desk.flight_bytes("a")) == (None, None)


def refused(id: str, reason: Reason = Reason.TOO_LARGE) -> KeptMessage:
    return KeptMessage(envelope(id), reason, ERROR)


def test_keep_makes_dead_envelopes_that_a_shunt_sends(desk: Desk) -> None:
    assert desk.store.keep([refused("a"), refused("b")]) == 2

    desk.check()
    assert desk.score_of("a", "dead") == NOW_MS
    flight = desk.flight_of("a")
    assert (flight.reason, flight.error_message) == (Reason.TOO_LARGE, "x-delay: no")
    assert (flight.attempt, flight.failures, flight.unsure) == (0, 0, False)
    assert desk.store.shunt(9, LEASE_MS).ids == ["a", "b"]


def test_keep_on_a_route_without_dead_letters_keeps_for_good(desk: Desk) -> None:
    assert desk.again(has_dead_letter=False).keep([refused("a")]) == 1
    assert desk.score_of("a", "dead") == float("inf")


def test_keep_journals_the_acceptance_and_the_death(desk: Desk) -> None:
    desk.store.keep([refused("a")])
    assert desk.journal() == [("accepted", ["a"]), ("dead", ["a"])]
    assert noted(desk.last_entry()) == [("a", (NOW_MS, 0, Reason.TOO_LARGE))]


@pytest.mark.parametrize("state", ["pending", "ready", "unack", "retry", "dead"])
def test_keep_of_an_id_that_is_there_changes_nothing(desk: Desk, state: str) -> None:
    desk.bring(state, "a")
    with desk.unchanged():
        assert desk.store.keep([refused("a")]) == 0


def test_keep_of_one_id_twice_keeps_the_first(desk: Desk) -> None:
    assert desk.store.keep([refused("a"), refused("a", Reason.INVALID)]) == 1
    assert desk.flight_of("a").reason == Reason.TOO_LARGE


def test_keep_can_be_replayed_and_dropped(desk: Desk) -> None:
    desk.store.keep([refused("a"), refused("b")])
    assert desk.store.replay(["a"]) == ["replayed"]
    assert desk.store.drop(["b"]) == ["dropped"]
    desk.check()


def test_keep_of_1000_is_one_step_and_1001_is_refused(desk: Desk) -> None:
    given = [refused(f"id-{number}") for number in range(1000)]
    with desk.unchanged(), pytest.raises(StoreError, match="at most 1000"):
        desk.store.keep([*given, refused("x")])
    assert desk.store.keep(given) == 1000
