"""Promote and reclaim: what is due becomes ready, what ran out comes back; memories end."""

import pytest

from duebridge.ports.publisher import Reason
from duebridge.store.transitions import Burial
from tests.store.conftest import Opened
from tests.support.desk import LEASE_MS, NOW_MS, Desk, envelope


def test_promote_moves_what_is_due_and_nothing_else(desk: Desk) -> None:
    desk.pending(envelope("a", "1s"), envelope("b", "1001ms"))
    desk.clock.advance(1000)
    before = desk.journal()
    poll, promoted = desk.store.promote()
    assert (promoted, poll.pending, poll.ready) == (1, 1, 1)
    assert (desk.state_of("a"), desk.state_of("b")) == ("ready", "pending")
    assert desk.score_of("a", "ready") == NOW_MS + 1000
    assert desk.journal() == before
    desk.check()


def test_promote_one_ms_early_changes_nothing(desk: Desk) -> None:
    desk.pending("a")
    desk.clock.advance(999)
    before = desk.snapshot()
    assert desk.store.promote()[1] == 0
    assert desk.snapshot() == before


def test_promote_takes_retries_with_the_end_of_their_delay(desk: Desk) -> None:
    desk.retry("a", delay_ms=500)
    retry_at = desk.clock() + 500
    desk.clock.advance(499)
    assert desk.store.promote()[1] == 0
    desk.clock.advance(1)
    assert desk.store.promote()[1] == 1
    assert desk.score_of("a", "ready") == retry_at
    desk.check()


def test_promote_of_a_retried_suspect_puts_it_among_the_suspects(desk: Desk) -> None:
    desk.suspect("a")
    desk.put_back(desk.store.claim(1, LEASE_MS, alone=True), delay_ms=5000)
    retry_at = desk.clock() + 5000
    desk.retry("neighbour")
    desk.clock.advance(4000)
    poll, promoted = desk.store.promote()
    assert (promoted, poll.retry, poll.ready, poll.suspect) == (2, 0, 1, 1)
    assert desk.score_of("a", "suspect") == retry_at
    assert desk.state_of("neighbour") == "ready"
    desk.check()


def test_promote_of_a_retry_with_one_expiry_puts_it_among_the_ready(desk: Desk) -> None:
    desk.unack("a")
    desk.run_out()
    desk.put_back(desk.store.claim(1, LEASE_MS), delay_ms=500)
    assert desk.flight_of("a").expiries == 1
    desk.clock.advance(500)
    assert desk.store.promote()[1] == 1
    assert desk.state_of("a") == "ready"
    desk.check()


def test_promote_of_a_replayed_suspect_puts_it_among_the_ready(desk: Desk) -> None:
    desk.suspect("a")
    claim = desk.store.claim(1, LEASE_MS, alone=True)
    desk.store.bury(
        claim.token,
        [Burial(id="a", reason=Reason.INVALID, is_failure=True, is_unsure=False, error="E")],
    )
    desk.store.replay(["a"], [0])
    assert desk.store.promote()[1] == 1
    assert desk.state_of("a") == "ready"


def test_promote_of_a_retry_without_a_flight_puts_it_among_the_ready(desk: Desk) -> None:
    desk.retry("a")
    desk.client.hdel(desk.key("flight"), "a")
    desk.clock.advance(1000)
    assert desk.store.promote()[1] == 1
    assert [each.id for each in desk.store.claim(1, LEASE_MS).leased] == ["a"]
    desk.check()


def test_promote_takes_the_earliest_first(desk: Desk) -> None:
    desk.pending(*[envelope(f"{n}", f"{n}s") for n in (3, 1, 2)])
    desk.clock.advance(5000)
    assert desk.store.promote(2)[1] == 2
    assert [desk.state_of(name) for name in "123"] == ["ready", "ready", "pending"]


def test_promote_of_a_shorter_delay_behind_a_longer_one_does_not_wait(desk: Desk) -> None:
    desk.pending(envelope("long", "6s"))
    desk.pending(envelope("short", "2s"))
    desk.clock.advance(2000)
    assert desk.store.promote()[1] == 1
    assert desk.state_of("short") == "ready"


def test_promote_shares_a_full_batch_between_retries_and_fresh_work(desk: Desk) -> None:
    desk.retry(*[f"r{n}" for n in range(10)])
    desk.pending(*[f"p{n}" for n in range(10)])
    desk.clock.advance(1000)
    poll, promoted = desk.store.promote(6)
    assert (promoted, poll.retry, poll.pending) == (6, 7, 7)
    desk.check()


@pytest.mark.parametrize("limit", [0, -1, -1000])
def test_promote_of_no_more_than_nothing_promotes_nothing(desk: Desk, limit: int) -> None:
    desk.pending("a")
    desk.clock.advance(1000)
    assert desk.store.promote(limit)[1] == 0


def test_promote_stops_while_ready_is_full(desk: Desk) -> None:
    desk.pending(*"abcde")
    desk.clock.advance(1000)
    assert desk.store.promote(10, ready_full=3)[1] == 3
    assert desk.store.promote(10, ready_full=3)[1] == 0
    desk.store.claim(2, 1000)
    assert desk.store.promote(10, ready_full=3)[1] == 2
    desk.check()


def test_promote_of_200000_due_at_once_moves_1000_a_call_and_stops_at_10000(
    open_desk: Opened,
) -> None:
    desk = open_desk()
    fill_pending(desk, 200_000)
    promoted = [desk.store.promote(1_000_000)[1] for _ in range(12)]
    assert promoted == [1000] * 10 + [0, 0]
    poll = desk.store.next()
    assert (poll.ready, poll.pending) == (10_000, 190_000)


def fill_pending(desk: Desk, count: int) -> None:
    """Only the index, since promote reads no record."""
    for first in range(0, count, 20_000):
        ids = {f"id-{n:06d}": desk.clock() for n in range(first, first + 20_000)}
        desk.client.zadd(desk.key("pending"), ids)


def test_promote_repeated_moves_nothing_twice(desk: Desk) -> None:
    desk.pending("a")
    desk.clock.advance(1000)
    assert [desk.run("promote", 1000, 10_000)[1] for _ in range(2)] == [1, 0]
    desk.check()


def test_reclaim_takes_back_only_what_ran_out(desk: Desk) -> None:
    due = desk.clock() + 1000
    desk.unack("a")
    desk.unack("b")
    desk.clock.advance(LEASE_MS - 1000)
    poll, reclaimed, poisoned = desk.store.reclaim()
    assert (reclaimed, poisoned, poll.ready, poll.unack) == (1, 0, 1, 1)
    assert desk.score_of("a", "ready") == due
    assert desk.state_of("b") == "unack"
    desk.check()


def test_reclaim_one_ms_early_changes_nothing(desk: Desk) -> None:
    desk.unack("a")
    desk.clock.advance(LEASE_MS - 1)
    before = desk.snapshot()
    assert desk.store.reclaim()[1] == 0
    assert desk.snapshot() == before


def test_reclaim_counts_an_expiry_and_no_failure(desk: Desk) -> None:
    desk.unack("a")
    desk.run_out()
    flight = desk.flight_of("a")
    assert (flight.expiries, flight.failures, flight.retries, flight.singles) == (1, 0, 0, 0)
    assert flight.unsure, "its delivery may have been made"


def test_reclaim_blames_nobody_when_the_store_was_away(desk: Desk) -> None:
    desk.unack("a")
    for _ in range(8):
        poll = desk.run_out(counted=False)
        assert (poll.ready, poll.suspect) == (1, 0)
        desk.store.claim(1, LEASE_MS)
    flight = desk.flight_of("a")
    assert (flight.expiries, flight.unsure) == (0, True)


def test_reclaim_twice_makes_a_suspect(desk: Desk) -> None:
    due = desk.clock() + 1000
    desk.suspect("a")
    assert desk.state_of("a") == "suspect"
    assert desk.score_of("a", "suspect") == due
    desk.check()


def test_reclaim_of_a_crash_burns_no_retry_of_what_was_leased_beside(desk: Desk) -> None:
    ids = [f"{n:03d}" for n in range(200)]
    desk.unack(*ids)
    for _ in range(9):
        desk.run_out()
        desk.store.claim(1000, LEASE_MS)
        desk.store.claim(1, LEASE_MS, alone=True)
    desk.run_out()
    flights = [desk.flight_of(name) for name in ids]
    assert {each.failures for each in flights} == {0}
    assert {each.retries for each in flights} == {0}
    poisoned = [name for name in ids if desk.state_of(name) == "dead"]
    assert poisoned in ([], ["000"]), "only what was claimed alone may be poison"
    desk.check()


@pytest.mark.parametrize("has_dead_letter", [True, False])
def test_reclaim_buries_poison_after_its_single_claims(
    open_desk: Opened, has_dead_letter: bool
) -> None:
    desk = open_desk(has_dead_letter=has_dead_letter)
    desk.suspect("a")
    for single in range(1, 4):
        assert desk.state_of("a") == "suspect"
        assert len(desk.store.claim(1, LEASE_MS, alone=True).leased) == 1
        poll = desk.run_out(poison=3)
        assert desk.flight_of("a").singles == single
    assert (poll.dead, poll.suspect, poll.unack) == (1, 0, 0)
    assert desk.flight_of("a").reason == Reason.POISON
    assert desk.score_of("a", "dead") == (desk.clock() if has_dead_letter else float("inf"))
    kind, ids = desk.journal()[-1]
    assert (kind, ids) == ("dead", ["a"])
    assert desk.last_entry().items[0][1].reason == Reason.POISON
    desk.check()


def test_reclaim_of_a_newer_layout_never_buries_it(desk: Desk) -> None:
    desk.suspect("a")
    desk.make_newer("a")
    for _ in range(7):
        assert len(desk.store.claim(1, LEASE_MS, alone=True).damaged) == 1
        desk.run_out(poison=2)
    assert desk.state_of("a") == "suspect"
    desk.check()


def test_reclaim_of_a_marked_one_removes_it_as_cancelled(desk: Desk) -> None:
    desk.unack("a", "b")
    desk.store.cancel("a")
    assert desk.run_out().ready == 1
    assert (desk.state_of("a"), desk.state_of("b")) == (None, "ready")
    assert desk.journal()[-1] == ("cancelled", ["a"])
    desk.check()


@pytest.mark.parametrize("limit", [0, -1, 2])
def test_reclaim_takes_no_more_than_asked(desk: Desk, limit: int) -> None:
    desk.unack("a", "b", "c")
    desk.clock.advance(LEASE_MS)
    assert desk.store.reclaim(limit)[1] == max(0, limit)
    desk.check()


def test_reclaim_takes_at_most_1000_a_call(desk: Desk) -> None:
    ids = [f"{n:04d}" for n in range(1100)]
    desk.unack(*ids[:550])
    desk.unack(*ids[550:])
    desk.clock.advance(LEASE_MS)
    assert [desk.store.reclaim(5000)[1] for _ in "abc"] == [1000, 100, 0]
    desk.check()


def test_reclaim_of_a_lease_without_a_flight_gives_it_back(desk: Desk) -> None:
    desk.unack("a")
    desk.client.hdel(desk.key("flight"), "a")
    assert desk.run_out().ready == 1
    assert [each.id for each in desk.store.claim(1, LEASE_MS).leased] == ["a"]
    desk.check()


def test_reclaim_of_a_ghost_ends_in_nothing(desk: Desk) -> None:
    desk.unack("a", "b")
    desk.lose_record("a")
    desk.run_out()
    assert [each.id for each in desk.store.claim(9, LEASE_MS).leased] == ["b"]
    assert desk.state_of("a") is None
    desk.check()


def test_reclaim_after_a_retry_goes_back_by_its_due(desk: Desk) -> None:
    due = desk.clock() + 1000
    desk.retry(envelope("a"))
    desk.clock.advance(1000)
    desk.claim_all()
    desk.run_out()
    assert desk.score_of("a", "ready") == due


def test_reclaim_tells_how_many_of_all_were_poison(desk: Desk) -> None:
    desk.suspect("a")
    desk.unack("b")
    desk.store.claim(1, LEASE_MS, alone=True)
    desk.clock.advance(LEASE_MS)
    assert desk.store.reclaim(poison=1)[1:] == (2, 1)


def remember(desk: Desk, *ids: str, keep: str = "1m") -> None:
    """Leave one memory an id and another for its cancel's answer."""
    for name in ids:
        desk.pending(envelope(name, remember=keep))
        assert desk.store.cancel(name) == "cancelled"


def test_forget_drops_what_is_over_and_nothing_else(desk: Desk) -> None:
    remember(desk, "a")
    remember(desk, "b", keep="2m")
    desk.clock.advance(59_999)
    before = desk.snapshot()
    assert desk.store.forget()[1] == 0
    assert desk.snapshot() == before
    desk.clock.advance(1)
    poll, forgotten = desk.store.forget()
    assert (forgotten, poll.first_forget_ms) == (3, desk.clock() + 60_000)
    assert list(desk.snapshot()["memory"]) == [b"rb"]
    desk.check()


def test_forget_of_a_memory_that_was_renewed_keeps_it(desk: Desk) -> None:
    remember(desk, "a")
    desk.clock.advance(30_000)
    remember_again = envelope("a", body=b"other", remember="1m")
    desk.pending(remember_again)
    desk.store.cancel("a")
    desk.clock.advance(30_000)
    desk.store.forget()
    assert b"ra" in desk.snapshot()["memory"]
    assert [each.status for each in desk.schedule(remember_again)] == ["duplicate"]


@pytest.mark.parametrize("limit", [0, -1, 2])
def test_forget_drops_no_more_than_asked(desk: Desk, limit: int) -> None:
    remember(desk, "a", "b")
    desk.clock.advance(60_000)
    assert desk.store.forget(limit)[1] == max(0, limit)
    desk.check()


def test_forget_drops_at_most_1000_a_call(desk: Desk) -> None:
    ids = [f"{n:04d}" for n in range(700)]
    desk.pending(*[envelope(name, remember="1m") for name in ids])
    for name in ids:
        desk.run("cancel", name, f"call-{name}", 60_000, 0)
    desk.clock.advance(60_000)
    assert [desk.store.forget(5000)[1] for _ in "abc"] == [1000, 400, 0]
    desk.check()


def test_forget_of_nothing_makes_no_key(desk: Desk) -> None:
    assert desk.store.forget()[1] == 0
    assert desk.client.exists(desk.key("memory"), desk.key("forget"), desk.key("meta")) == 0


def test_memory_is_over_at_its_time_even_before_it_is_forgotten(desk: Desk) -> None:
    remember(desk, "a")
    desk.clock.advance(60_000)
    assert [each.status for each in desk.schedule(envelope("a", remember="1m"))] == ["accepted"]
