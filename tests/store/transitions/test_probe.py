"""One live envelope of those set aside for a held target tries it; expired ones never do."""

import pytest

from duebridge.store.delay_store import NO_CURSOR
from duebridge.store.wire.leases import Claim
from tests.store.conftest import Opened
from tests.support.desk import LEASE_MS, NOW_MS, Desk, acks, aside, envelope

TAG = "tag-of-t"


def probe(desk: Desk, limit: int = 1000, tag: str = TAG) -> tuple[Claim, int]:
    """Probe page by page until something is leased or nothing is left; return the pages too."""
    cursor, pages, expired = NO_CURSOR, 0, 0
    while True:
        claim, cursor_or_end = desk.store.probe(tag, LEASE_MS, limit, cursor)
        pages, expired = pages + 1, expired + claim.expired
        assert pages < 60, "it never ends"
        if claim.held or cursor_or_end is None:
            return claim._replace(expired=expired), pages
        cursor = cursor_or_end


def test_probe_leases_the_first_and_only_that(desk: Desk) -> None:
    desk.set_aside("b", "a", "c", clock="start")
    claim, _ = probe(desk)
    assert (claim.ids, claim.poll.unack, claim.poll.retry) == (["a"], 1, 2)
    (leased,) = claim.leased
    assert (leased.flight.attempt, leased.flight.held_since_ms) == (2, desk.clock())
    assert desk.score_of("a", "unack") == desk.clock() + LEASE_MS
    assert desk.store.ack(acks(claim.token, "a")).stale == []


def test_probe_again_takes_the_next_one(desk: Desk) -> None:
    desk.set_aside("a", "b")
    tokens = {probe(desk)[0].token for _ in "ab"}
    assert len(tokens) == 2
    assert probe(desk)[0] == Claim(desk.store.next(), b"", [], [])


@pytest.mark.parametrize("limit", [1, 2, 3, 1000])
def test_probe_passes_over_other_targets_and_retries(desk: Desk, limit: int) -> None:
    desk.retry("a", "b", delay_ms=60_000)
    desk.set_aside("c", "d", tag="tag-of-u", delay_ms=60_000)
    desk.set_aside("e", delay_ms=60_000)
    claim, _ = probe(desk, limit)
    assert claim.ids == ["e"]
    assert [desk.state_of(each) for each in "abcd"] == ["retry"] * 4


def test_probe_of_no_such_target_changes_nothing(desk: Desk) -> None:
    desk.set_aside("a", "b")
    desk.retry("c", delay_ms=60_000)
    with desk.unchanged():
        for limit in (1, 2, 1000):
            assert not probe(desk, limit, "tag-of-x")[0].held


@pytest.mark.parametrize("limit", [1, 7, 50, 390, 1000])
def test_probe_buries_expired_heads_and_tries_with_the_first_live_one(
    desk: Desk, limit: int
) -> None:
    dying = [envelope(f"a{n:03d}", expires="2s") for n in range(50)]
    desk.set_aside(*dying, envelope("live"), delay_ms=60_000)
    desk.clock.advance(2000)
    claim, _ = probe(desk, limit)
    assert (claim.ids, claim.expired) == (["live"], 50)
    assert claim.poll.dead == 50
    assert desk.flight_of("a000").attempt == 1
    kinds = [kind for kind, _ in desk.journal()]
    assert set(kinds) == {"accepted", "expired"}


def test_probe_of_expired_ones_alone_leases_nothing_and_is_over(open_desk: Opened) -> None:
    desk = open_desk(has_dead_letter=False)
    desk.set_aside(envelope("a", expires="2s"))
    desk.clock.advance(2000)
    claim, pages = probe(desk)
    assert (claim.held, claim.expired, pages) == (0, 1, 1)
    assert desk.score_of("a", "dead") == float("inf")
    assert desk.state_of("a") == "dead"


def test_probe_drops_a_ghost_and_takes_the_next(desk: Desk) -> None:
    desk.set_aside("a", "b")
    desk.lose_record("a")
    assert probe(desk)[0].ids == ["b"]
    assert (desk.state_of("a"), desk.flight_bytes("a")) == (None, None)


@pytest.mark.parametrize(("how", "leased"), [(45, 0), (5, 0), ("newer", 0)])
def test_probe_holds_what_it_cannot_read(desk: Desk, how: str | int, leased: int) -> None:
    desk.set_aside("a", "b")
    desk.spoil("a", how)
    claim, _ = probe(desk)
    assert (claim.ids, len(claim.leased)) == (["a"], leased)
    assert claim.damaged[0].is_too_new == (how == "newer")


def test_probe_of_a_suspect_claims_it_alone(desk: Desk) -> None:
    desk.suspect("a")
    desk.put_aside(desk.store.claim(1, LEASE_MS, alone=True))
    assert probe(desk)[0].ids == ["a"]
    desk.run_out(poison=1)
    assert desk.state_of("a") == "dead"


def test_probe_whose_lease_runs_out_costs_one_expiry(desk: Desk) -> None:
    desk.set_aside("a")
    claim, _ = probe(desk)
    desk.run_out()
    assert (desk.state_of("a"), desk.flight_of("a").expiries) == ("ready", 1)
    with desk.unchanged():
        assert desk.put_aside(claim).stale == ["a"]


def test_cancel_of_a_probe_ends_it_with_the_lease(desk: Desk) -> None:
    desk.set_aside("a")
    claim, _ = probe(desk)
    assert desk.store.cancel("a") == "in_flight"
    assert desk.store.set_aside(claim.token, [aside("a")]).stale == []
    assert desk.state_of("a") is None


def test_probe_comes_before_the_delay_is_over(desk: Desk) -> None:
    """It is due since its schedule: the delay of one set aside is only the latest time."""
    desk.set_aside("a", delay_ms=600_000)
    assert desk.clock() == NOW_MS + 1000
    assert probe(desk)[0].ids == ["a"]
