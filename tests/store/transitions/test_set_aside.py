"""What waits for its target: in retry, tagged, nothing counted, with the clock of its hold."""

import pytest

from duebridge.store.wire.transitions import NO_TAG, HoldClock
from tests.support.desk import DAY_MS, LEASE_MS, Desk, acks, aside, burial, envelope, retrying


def tag_of(desk: Desk, id: str) -> str:
    """The tag in the bytes of a flight; empty without a tail."""
    _, _, tail = (desk.flight_bytes(id) or b"")[47:].partition(b"\0")
    return tail[13:21].decode()


def test_set_aside_waits_in_retry_and_counts_nothing(desk: Desk) -> None:
    claim = desk.unack("a", "b")
    settled = desk.store.set_aside(claim.token, [aside("a", 500), aside("b", 1500, "tag-of-u")])
    assert (settled.stale, settled.poll.retry, settled.poll.unack) == ([], 2, 0)
    assert [desk.score_of(each, "retry") for each in "ab"] == [
        desk.clock() + ms for ms in (500, 1500)
    ]
    assert [tag_of(desk, each) for each in "ab"] == ["tag-of-t", "tag-of-u"]
    flight = desk.flight_of("a")
    counted = (flight.failures, flight.retries, flight.expiries, flight.unsure, flight.error_class)
    assert (flight.attempt, *counted) == (1, 0, 0, 0, False, "")
    assert desk.journal() == [("accepted", ["a", "b"])]


def test_set_aside_of_a_shunted_one_is_stale(desk: Desk) -> None:
    claim = desk.shunt("a")
    with desk.unchanged():
        assert desk.put_aside(claim).stale == ["a"]


@pytest.mark.parametrize(("unsure", "answer"), [(False, "cancelled"), (True, "in_flight")])
def test_cancel_of_one_set_aside_says_whether_it_may_be_out(
    desk: Desk, unsure: bool, answer: str
) -> None:
    desk.set_aside("a", is_unsure=unsure)
    assert desk.store.cancel("a") == answer
    assert desk.state_of("a") is None


def test_set_aside_after_a_try_keeps_why_and_is_journalled(desk: Desk) -> None:
    desk.set_aside("a", error="E\nno such topic", clock="start")
    flight = desk.flight_of("a")
    assert (flight.error_class, flight.error_message) == ("E", "no such topic")
    assert flight.first_failed_at_ms == flight.last_failed_at_ms == desk.clock()
    assert desk.journal()[-1] == ("retried", ["a"])


def test_set_aside_of_a_long_text_with_nul_is_still_tagged(desk: Desk) -> None:
    desk.set_aside("a", error="E\n" + "é\ud800\0" * 1000, clock="start")
    assert tag_of(desk, "a") == "tag-of-t"
    assert desk.flight_of("a").held_since_ms == desk.clock()
    assert "\0" not in desk.flight_of("a").error_message


@pytest.mark.parametrize(("second", "since_ms"), [("start", 1000), ("keep", 1000), ("end", 0)])
def test_clock_of_hold_starts_once_and_ends_with_another_outcome(
    desk: Desk, second: HoldClock, since_ms: int
) -> None:
    began = desk.clock()
    desk.set_aside("a", clock="start", delay_ms=1)
    desk.clock.advance(5000)
    desk.put_aside(desk.claim_all(), clock=second)
    assert desk.flight_of("a").held_since_ms == (began + since_ms if since_ms else 0)


def test_clock_of_hold_from_before_the_due_instant_is_over(desk: Desk) -> None:
    """A reschedule of 0.2.0 moves the due instant, and leaves the clock as it is."""
    desk.set_aside("a", clock="start")
    before = desk.flight_bytes("a")
    assert desk.store.reschedule("a", "+60000", DAY_MS).status == "rescheduled"
    after = desk.flight_bytes("a")
    assert before
    assert after
    desk.client.hset(desk.key("flight"), "a", after[:47] + before[47:])
    assert desk.flight_of("a").held_since_ms > 0
    desk.clock.advance(60_000)
    [leased] = desk.claim_all().leased
    assert leased.flight.held_since_ms == desk.flight_of("a").held_since_ms == 0


def test_clock_of_hold_does_not_start_in_an_outage(desk: Desk) -> None:
    desk.set_aside("a", clock="keep")
    assert desk.flight_of("a").held_since_ms == 0


@pytest.mark.parametrize("end", ["retry", "bury"])
def test_clock_of_hold_ends_with_a_failure_or_a_burial(desk: Desk, end: str) -> None:
    desk.set_aside("a", clock="start", delay_ms=1)
    desk.clock.advance(1)
    token = desk.claim_all().token
    if end == "retry":
        desk.store.retry(token, [retrying("a")])
    else:
        desk.store.bury(token, [burial("a")])
    assert desk.flight_of("a").held_since_ms == 0
    assert tag_of(desk, "a") in ("", NO_TAG)


def test_clock_of_hold_goes_on_through_a_release_and_a_lost_lease(desk: Desk) -> None:
    desk.set_aside("a", clock="start", delay_ms=1)
    since_ms = desk.flight_of("a").held_since_ms
    desk.clock.advance(1)
    desk.store.release(desk.claim_all().token, ["a"])
    assert desk.flight_of("a").held_since_ms == since_ms
    desk.claim_all()
    desk.run_out()
    assert (desk.flight_of("a").held_since_ms, tag_of(desk, "a")) == (since_ms, NO_TAG)


def test_clock_of_hold_ends_with_a_reschedule_and_with_the_tag(desk: Desk) -> None:
    desk.set_aside("a", clock="start")
    assert desk.store.reschedule("a", "+500", 10**9)[0] == "rescheduled"
    assert (desk.flight_of("a").held_since_ms, tag_of(desk, "a")) == (0, "")
    assert desk.store.resume().moved == 0
    assert desk.state_of("a") == "pending"


@pytest.mark.parametrize("death", ["expired", "buried"])
def test_clock_of_hold_ends_with_a_replay(desk: Desk, death: str) -> None:
    desk.set_aside(envelope("a", expires="3s"), clock="start", delay_ms=1)
    desk.clock.advance(1 if death == "buried" else 5000)
    claim = desk.claim_all()
    if death == "buried":
        desk.store.bury(claim.token, [burial("a")])
    assert desk.state_of("a") == "dead"
    assert desk.flight_of("a").held_since_ms == 0
    assert desk.store.replay(["a"]) == ["replayed"]
    assert (desk.flight_of("a").held_since_ms, tag_of(desk, "a")) == (0, "")


def test_promote_of_one_set_aside_claims_it_untagged_with_the_next_attempt(desk: Desk) -> None:
    desk.set_aside("a", delay_ms=1000, clock="start")
    desk.clock.advance(999)
    assert desk.claim_all().ids == []
    desk.clock.advance(1)
    (leased,) = desk.claim_all().leased
    assert (leased.flight.attempt, leased.flight.held_since_ms) == (2, desk.clock() - 1000)
    assert tag_of(desk, "a") == NO_TAG


def test_promote_of_a_suspect_set_aside_keeps_it_apart(desk: Desk) -> None:
    desk.suspect("a")
    claim = desk.store.claim(1, LEASE_MS, alone=True)
    desk.put_aside(claim, delay_ms=1)
    desk.clock.advance(1)
    desk.store.promote()
    assert desk.state_of("a") == "suspect"


@pytest.mark.parametrize("state", ["retry", "dead"])
def test_flight_of_an_older_version_has_no_tail_and_none_is_needed(desk: Desk, state: str) -> None:
    """Its text ends the flight; nothing of it is taken for a clock or a tag."""
    desk.bring(state, "a")
    assert b"\0" not in (desk.flight_bytes("a") or b"")[47:]
    assert tag_of(desk, "a") == ""
    assert desk.store.resume().moved == 0


@pytest.mark.parametrize(
    "tail", ["", "1", "1800000000000", "1800000000000tag", "x" * 13 + "y" * 50]
)
def test_flight_with_a_damaged_tail_is_delivered_all_the_same(desk: Desk, tail: str) -> None:
    desk.retry("a", error="E\nno")
    packed = (desk.flight_bytes("a") or b"") + b"\0" + tail.encode()
    desk.client.hset(desk.key("flight"), "a", packed)
    desk.store.resume()
    desk.clock.advance(1000)
    claim = desk.claim_all()
    assert claim.ids == ["a"]
    assert desk.flight_of("a").error_message == "no"
    desk.put_aside(claim, clock="start")
    assert (tag_of(desk, "a"), desk.flight_of("a").error_message) == ("tag-of-t", "no")


def test_flight_that_an_older_worker_rewrote_loses_its_tail_and_is_not_misread(desk: Desk) -> None:
    """It keeps the fixed part and writes its own text over the rest."""
    desk.set_aside("a", clock="start", error="E\nno")
    packed = desk.flight_bytes("a") or b""
    desk.client.hset(desk.key("flight"), "a", packed[:47] + b"Old\nits own")
    assert desk.store.resume().moved == 0
    flight = desk.flight_of("a")
    assert (flight.held_since_ms, flight.error_class, flight.error_message) == (0, "Old", "its own")
    desk.clock.advance(10_000)
    assert desk.store.ack(acks(desk.claim_all().token, "a")).stale == []


def test_flight_cut_short_is_set_aside_like_any(desk: Desk) -> None:
    desk.retry("a", "b")
    desk.client.hset(desk.key("flight"), "a", b"short")
    desk.clock.advance(1000)
    assert desk.put_aside(desk.claim_all()).stale == []
    assert [tag_of(desk, each) for each in "ab"] == ["tag-of-t"] * 2
