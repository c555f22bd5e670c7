import pytest

from duebridge.errors import StoreError
from duebridge.store.delay_store import ERROR_BYTES
from duebridge.store.transitions import Retry
from tests.store.desk import LEASE_MS, NOT_MINE, Desk


def test_retry_waits_for_its_own_delay(desk: Desk) -> None:
    claim = desk.unack("a", "b")
    retries = [Retry("a", 500, True, False, ""), Retry("b", 1500, True, False, "")]
    settled = desk.store.retry(claim.token, retries)
    assert (settled.stale, settled.poll.retry, settled.poll.unack) == ([], 2, 0)
    assert desk.score_of("a", "retry") == desk.clock() + 500
    assert desk.score_of("b", "retry") == desk.clock() + 1500
    desk.check()


def test_retry_counts_a_failure_only_when_told(desk: Desk) -> None:
    claim = desk.unack("a", "b")
    retries = [Retry("a", 1, True, False, "E\nno"), Retry("b", 1, False, False, "")]
    desk.store.retry(claim.token, retries)
    flights = [desk.flight_of(name) for name in "ab"]
    assert [each.failures for each in flights] == [1, 0]
    assert [each.retries for each in flights] == [1, 1]
    assert [each.unsure for each in flights] == [False, False]


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


def test_retry_of_an_unsure_delivery_stays_unsure(desk: Desk) -> None:
    desk.retry("a", failed=False, unsure=True)
    desk.clock.advance(1000)
    desk.put_back(desk.claim_all(), failed=True, unsure=False)
    assert desk.flight_of("a").unsure
    assert desk.store.cancel("a") == "in_flight"


def test_retry_is_journalled_with_its_attempt(desk: Desk) -> None:
    due = desk.clock() + 1000
    desk.retry("a")
    entry = desk.last_entry()
    assert (entry.kind, entry.items) == ("retried", [("a", (due, 1, None))])


def test_retry_of_a_marked_one_removes_it_as_cancelled(desk: Desk) -> None:
    claim = desk.unack("a", "b")
    assert desk.store.cancel("a") == "in_flight"
    assert desk.put_back(claim).stale == []
    assert desk.state_of("a") is None
    assert desk.state_of("b") == "retry"
    assert desk.journal()[-2:] == [("retried", ["b"]), ("cancelled", ["a"])]
    desk.check()


@pytest.mark.parametrize("token", [NOT_MINE, bytes(12), b""])
def test_retry_with_a_strange_token_is_stale_and_changes_nothing(desk: Desk, token: bytes) -> None:
    desk.unack("a")
    before = desk.snapshot()
    retries = [Retry("a", 1, True, True, "E\nx"), Retry("nobody", 1, True, True, "E\nx")]
    settled = desk.store.retry(token, retries, target_failed=True)
    assert settled.stale == ["a", "nobody"]
    assert desk.snapshot() == before


@pytest.mark.parametrize("state", ["pending", "ready", "suspect", "retry", "dead"])
def test_retry_with_zeros_for_a_token_changes_nothing_that_nobody_holds(
    desk: Desk, state: str
) -> None:
    desk.bring(state, "a")
    before = desk.snapshot()
    assert desk.store.retry(bytes(12), [Retry("a", 1, True, True, "")]).stale == ["a"]
    assert desk.snapshot() == before


def test_retry_twice_is_stale_and_counts_once(desk: Desk) -> None:
    claim = desk.unack("a")
    desk.put_back(claim)
    before = desk.snapshot()
    assert desk.put_back(claim).stale == ["a"]
    assert desk.snapshot() == before


def test_retry_too_late_resurrects_no_delivered_message(desk: Desk) -> None:
    late = desk.unack("a")
    desk.run_out()
    second = desk.store.claim(1, LEASE_MS)
    desk.store.ack(second.token, ["a"])
    before = desk.snapshot()
    assert desk.put_back(late).stale == ["a"]
    assert desk.snapshot() == before
    assert desk.state_of("a") is None


def test_retry_after_the_deadline_but_before_reclaim_is_accepted(desk: Desk) -> None:
    claim = desk.unack("a")
    desk.clock.advance(2 * LEASE_MS)
    assert desk.put_back(claim).stale == []
    assert desk.flight_of("a").expiries == 0
    desk.check()


def test_retry_for_a_failed_target_holds_the_route_since_the_first(desk: Desk) -> None:
    claim = desk.unack("a", "b")
    held_at = desk.clock()
    desk.store.retry(claim.token, [Retry("a", 1, False, False, "")], target_failed=True)
    desk.clock.advance(500)
    settled = desk.store.retry(claim.token, [Retry("b", 1, False, False, "")], target_failed=True)
    assert settled.poll.held_since_ms == held_at


def test_retry_of_an_error_text_is_cut_to_its_limit(desk: Desk) -> None:
    desk.retry("a", error="E\n" + "x" * 10_000)
    assert len(desk.flight_of("a").error_message) == ERROR_BYTES - 2


def test_retry_of_an_error_text_cut_within_a_letter_can_be_read(desk: Desk) -> None:
    desk.retry("a", error="E\n" + "é\ud800\x00" * 1000)
    assert desk.flight_of("a").error_message.startswith("é")


def test_retry_counters_stop_at_their_width(desk: Desk) -> None:
    desk.retry("a")
    packed = desk.flight_bytes("a")
    desk.client.hset(desk.key("flight"), "a", packed[:22] + b"\xff" * 4 + packed[26:])
    desk.clock.advance(1000)
    desk.put_back(desk.claim_all())
    assert (desk.flight_of("a").failures, desk.flight_of("a").retries) == (65535, 65535)


def test_retry_of_1000_is_one_step_and_1001_is_refused(desk: Desk) -> None:
    ids = [f"{n:04d}" for n in range(1000)]
    claim = desk.unack(*ids)
    retries = [Retry(name, 10, True, False, "E\n" + "x" * 100) for name in ids]
    before = desk.snapshot()
    with pytest.raises(StoreError, match="LIMIT"):
        desk.store.retry(claim.token, [*retries, retries[0]])
    assert desk.snapshot() == before
    assert desk.store.retry(claim.token, retries).stale == []
    assert desk.journal()[-1] == ("retried", ids)
    desk.check()
