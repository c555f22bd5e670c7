import pytest

from duebridge.errors import StoreError
from duebridge.ports.publisher import Reason
from tests.store.desk import LEASE_MS, Desk, envelope


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
    desk.check()


def test_replay_keeps_the_attempt_and_resets_the_rest(desk: Desk) -> None:
    desk.dead("a")
    desk.store.replay(["a"])
    flight = desk.flight_of("a")
    assert (flight.attempt, flight.failures, flight.retries, flight.reason) == (1, 0, 0, 0)
    assert (flight.first_failed_at_ms, flight.error_message) == (0, "")
    (leased,) = desk.claim_all().leased
    assert (leased.flight.attempt, leased.content.body) == (2, b"body of a")


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


def test_replay_keeps_scheduled_remember_hash_and_blob(desk: Desk) -> None:
    desk.dead(envelope("a", remember="1h"))
    before = desk.record_of("a")
    desk.store.replay(["a"], [700])
    after = desk.record_of("a")
    for field in ("scheduled_at_ms", "remember_ms", "content_hash", "blob"):
        assert getattr(after, field) == getattr(before, field)


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


def test_replay_keeps_an_expiry_to_come(desk: Desk) -> None:
    desk.dead(envelope("a", expires="1h"))
    expires = desk.record_of("a").expires_at_ms
    desk.store.replay(["a"])
    assert desk.record_of("a").expires_at_ms == expires


def test_replay_refuses_while_a_shunt_holds_it(desk: Desk) -> None:
    claim = desk.shunt("a")
    desk.clock.advance(LEASE_MS - 1)
    before = desk.snapshot()
    assert desk.store.replay(["a"]) == ["in_flight"]
    assert desk.snapshot() == before
    desk.clock.advance(1)
    assert desk.store.replay(["a"]) == ["replayed"]
    before = desk.snapshot()
    assert desk.store.ack(claim.token, ["a"], shunted=True).stale == ["a"]
    assert desk.snapshot() == before
    desk.check()


@pytest.mark.parametrize("state", ["pending", "ready", "suspect", "unack", "retry"])
def test_replay_of_the_living_is_unknown_and_changes_nothing(desk: Desk, state: str) -> None:
    desk.bring(state, "a")
    before = desk.snapshot()
    assert desk.store.replay(["a", "nobody"]) == ["unknown", "unknown"]
    assert desk.snapshot() == before


def test_replay_of_an_id_twice_in_one_call_replays_it_once(desk: Desk) -> None:
    desk.dead("a")
    assert desk.store.replay(["a", "a"]) == ["replayed", "unknown"]
    desk.check()


@pytest.mark.parametrize("spoil", ["newer", "ghost"])
def test_replay_of_what_cannot_be_read_changes_nothing(desk: Desk, spoil: str) -> None:
    desk.dead("a")
    desk.make_newer("a") if spoil == "newer" else desk.lose_record("a")
    before = desk.snapshot()
    assert desk.store.replay(["a"]) == ["unknown"]
    assert desk.snapshot() == before


def test_replay_of_a_dead_one_that_no_target_takes(open_desk) -> None:
    desk = open_desk(has_dead_letter=False)
    desk.dead("a")
    assert desk.store.replay(["a"]) == ["replayed"]
    desk.check()


def test_replay_of_1000_is_one_step_and_1001_is_refused(desk: Desk) -> None:
    ids = [f"{n:04d}" for n in range(1000)]
    desk.dead(*ids)
    before = desk.snapshot()
    with pytest.raises(StoreError, match="LIMIT"):
        desk.store.replay([*ids, "x"])
    assert desk.snapshot() == before
    assert desk.store.replay(ids, [1] * 1000) == ["replayed"] * 1000
    desk.check()
