"""Promote and reclaim: what is due becomes ready, what ran out comes back; memories end."""

from collections.abc import Callable

import pytest

from duebridge.ports.publisher import Reason
from duebridge.store.delay_store import DelayStore
from tests.store.conftest import Opened
from tests.support.desk import LEASE_MS, Desk, envelope


def test_promote_of_a_retry_without_a_flight_puts_it_among_the_ready(desk: Desk) -> None:
    desk.retry("a")
    desk.client.hdel(desk.key("flight"), "a")
    desk.clock.advance(1000)
    assert desk.store.promote()[1] == 1
    assert [each.id for each in desk.store.claim(1, LEASE_MS).leased] == ["a"]
    desk.check()


def test_promote_shares_a_full_batch_between_retries_and_fresh_work(desk: Desk) -> None:
    desk.retry(*[f"r{n}" for n in range(10)])
    desk.pending(*[f"p{n}" for n in range(10)])
    desk.clock.advance(1000)
    poll, promoted = desk.store.promote(6)
    assert (promoted, poll.retry, poll.pending) == (6, 7, 7)


def test_promote_stops_while_ready_is_full(desk: Desk) -> None:
    desk.pending(*"abcde")
    desk.clock.advance(1000)
    assert desk.store.promote(10, ready_full=3)[1] == 3
    assert desk.store.promote(10, ready_full=3)[1] == 0
    desk.store.claim(2, 1000)
    assert desk.store.promote(10, ready_full=3)[1] == 2


def test_promote_of_20000_due_at_once_moves_1000_a_call_and_stops_at_10000(
    open_desk: Opened,
) -> None:
    desk = open_desk()
    fill_pending(desk, 20_000)
    promoted = [desk.store.promote(1_000_000)[1] for _ in range(12)]
    assert promoted == [1000] * 10 + [0, 0]
    poll = desk.store.next()
    assert (poll.ready, poll.pending) == (10_000, 10_000)


def fill_pending(desk: Desk, count: int) -> None:
    """Only the index, since promote reads no record."""
    desk.is_whole = False
    ids = {f"id-{n:06d}": desk.clock() for n in range(count)}
    desk.client.zadd(desk.key("pending"), ids)


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


def test_reclaim_of_a_newer_layout_never_buries_it(desk: Desk) -> None:
    desk.suspect("a")
    desk.make_newer("a")
    for _ in range(7):
        assert len(desk.store.claim(1, LEASE_MS, alone=True).damaged) == 1
        desk.run_out(poison=2)
    assert desk.state_of("a") == "suspect"


def test_reclaim_of_a_marked_one_removes_it_as_cancelled(desk: Desk) -> None:
    desk.unack("a", "b")
    desk.store.cancel("a")
    assert desk.run_out().ready == 1
    assert (desk.state_of("a"), desk.state_of("b")) == (None, "ready")
    assert desk.journal()[-1] == ("cancelled", ["a"])


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


def test_reclaim_tells_how_many_of_all_were_poison(desk: Desk) -> None:
    desk.suspect("a")
    desk.unack("b")
    desk.store.claim(1, LEASE_MS, alone=True)
    desk.clock.advance(LEASE_MS)
    assert desk.store.reclaim(poison=1)[1:] == (2, 1)


def remember(desk: Desk, *ids: str, keep: str = "1m") -> None:
    """Leave one memory an id and another for its cancel's answer."""
    desk.pending(*[envelope(name, remember=keep) for name in ids])
    for name in ids:
        assert desk.store.cancel(name) == "cancelled"


def test_forget_of_nothing_changes_nothing(desk: Desk) -> None:
    with desk.unchanged():
        assert desk.store.forget()[1] == 0


def due(desk: Desk, *ids: str) -> None:
    desk.pending(*ids)
    desk.clock.advance(1000)


def run_out(desk: Desk, *ids: str) -> None:
    desk.unack(*ids)
    desk.clock.advance(LEASE_MS)


def over(desk: Desk, *ids: str) -> None:
    remember(desk, *ids)
    desk.clock.advance(60_000)


LIMITED: dict[str, tuple[Callable[..., object], Callable[[DelayStore, int], int]]] = {
    "promote": (due, lambda store, limit: store.promote(limit)[1]),
    "claim": (Desk.ready, lambda store, limit: len(store.claim(limit, 1).leased)),
    "reclaim": (run_out, lambda store, limit: store.reclaim(limit)[1]),
    "shunt": (Desk.dead, lambda store, limit: len(store.shunt(limit, 1).leased)),
    "list": (due, lambda store, limit: len(store.list("pending", limit=limit).entries)),
    "forget": (over, lambda store, limit: store.forget(limit)[1]),
}


@pytest.mark.parametrize("limit", [0, -1, -1000, 2])
@pytest.mark.parametrize("call", LIMITED)
def test_call_takes_no_more_than_its_limit(desk: Desk, call: str, limit: int) -> None:
    bring, take = LIMITED[call]
    bring(desk, "a", "b", "c")
    assert take(desk.store, limit) == max(0, limit)


@pytest.mark.parametrize("call", LIMITED)
def test_call_takes_at_most_1000_whatever_its_limit(desk: Desk, call: str) -> None:
    bring, take = LIMITED[call]
    for batch in "xy":
        bring(desk, *[f"{batch}{n}" for n in range(510)])
    assert take(desk.store, 5000) == 1000


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


def test_reclaim_blames_nobody_when_the_store_was_away(desk: Desk) -> None:
    desk.unack("a")
    for _ in range(8):
        poll = desk.run_out(counted=False)
        assert (poll.ready, poll.suspect) == (1, 0)
        desk.store.claim(1, LEASE_MS)
    flight = desk.flight_of("a")
    assert (flight.expiries, flight.unsure) == (0, True)


def test_reclaim_after_a_retry_goes_back_by_its_due(desk: Desk) -> None:
    due = desk.clock() + 1000
    desk.retry(envelope("a"))
    desk.clock.advance(1000)
    desk.claim_all()
    desk.run_out()
    assert desk.score_of("a", "ready") == due
