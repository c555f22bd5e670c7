import pytest

from duebridge.ports.publisher import Reason
from duebridge.store.transitions import Burial
from tests.store.conftest import Opened
from tests.store.desk import LEASE_MS, NOW_MS, Desk, envelope


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
    desk.store.bury(claim.token, [Burial("a", Reason.INVALID, True, False, "E")])
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
