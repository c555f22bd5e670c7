"""What a worker does with each verdict of a broker, turn by turn."""

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from duebridge.envelope import Target
from duebridge.ports.publisher import CONFIRMED, Delivery, Outcome, Reason, Verdict
from tests.support.floor import START_MS, Floor

FAILED = Outcome(Verdict.FAILED, error_class="Nack", error_message="not now")
REJECTED = Outcome(Verdict.REJECTED, Reason.TOO_LARGE, "TooLarge", "2 MiB")
MISSING = Outcome(Verdict.TARGET_FAILED, Reason.TARGET_MISSING, "UnknownTopic", "t")
UNKNOWN = Outcome(Verdict.INDETERMINATE, error_class="Timeout", error_message="no word")


def answer(floor: Floor, outcome: Outcome | None) -> None:
    """Script the broker: this for everything to the route's target, a confirm for dead letters."""
    floor.publisher.script(lambda delivery: outcome if delivery.target.topic == "t" else None)


def test_deliver_carries_the_documented_headers_and_leaves_nothing(floor: Floor) -> None:
    floor.schedule("a", headers=[("tenant", "x"), ("tenant", "y")])
    floor.turn(1000)
    assert list(floor.publisher.delivered[0].headers) == [
        ("tenant", "x"),
        ("tenant", "y"),
        ("x-message-id", "a"),
        ("x-route", "r"),
        ("x-attempt", "1"),
        ("x-due-at", str(START_MS + 1000)),
        ("x-scheduled-at", str(START_MS)),
    ]
    assert floor.state("a") is None


def test_retry_after_failure_waits_for_the_backoff_and_counts(floor: Floor) -> None:
    answer(floor, FAILED)
    floor.schedule("a")
    floor.turn(1000)
    assert floor.state("a") == "retry"
    assert (floor.flight("a").failures, floor.flight("a").unsure) == (1, False)
    answer(floor, None)
    floor.turn(999)
    assert floor.arrived() == []
    floor.turn(1)
    assert floor.headers("a")["x-attempt"] == "2"


def test_bury_at_max_attempts_sends_a_dead_letter_that_says_why(floor: Floor) -> None:
    answer(floor, FAILED)
    floor.schedule("a", key=b"k", headers={"tenant": "x"})
    for wait_ms in (1000, 1000, 2000):
        floor.turn(wait_ms)
    headers = floor.headers("a", "dlt")
    assert floor.state("a") is None
    assert floor.publisher.delivered[0].body == b"body of a"
    assert floor.publisher.delivered[0].key == b"k"
    assert floor.publisher.delivered[0].is_dead_letter
    assert headers["tenant"] == "x"
    assert {name: headers[name] for name in headers if name.startswith("x-dlq")} == {
        "x-dlq-reason": "attempts_exhausted",
        "x-dlq-error-class": "Nack",
        "x-dlq-error-message": "not now",
        "x-dlq-attempts": "3",
        "x-dlq-route": "r",
        "x-dlq-target": "memory:t",
        "x-dlq-first-failed-at": str(START_MS + 1000),
        "x-dlq-last-failed-at": str(START_MS + 4000),
    }


def test_bury_with_max_attempts_of_its_own_obeys_the_envelope(floor: Floor) -> None:
    answer(floor, FAILED)
    floor.schedule("once", max_attempts=1)
    floor.schedule("thrice")
    floor.turn(1000)
    assert floor.arrived("dlt") == ["once"]
    assert floor.state("thrice") == "retry"


def test_bury_rejected_or_expired_goes_to_the_dead_letter_at_once(floor: Floor) -> None:
    answer(floor, REJECTED)
    floor.schedule("late", expires="1200ms")
    floor.schedule("large", delay="1500ms")
    floor.turn(1500)
    assert floor.arrived() == []
    reasons = {name: floor.headers(name, "dlt")["x-dlq-reason"] for name in ("late", "large")}
    assert reasons == {"late": "expired", "large": "too_large"}


def test_unavailable_releases_and_stops_the_lane_until_it_answers(floor: Floor) -> None:
    floor.schedule("before")
    floor.turn(1000)
    floor.publisher.is_available = False  # unnoticed: the lane is open, and claims
    floor.schedule("a")
    floor.turn(1000)
    assert (floor.state("a"), floor.flight("a").failures) == ("ready", 0)
    assert not floor.lane.is_open
    attempt = floor.flight("a").attempt
    floor.turn(60_000)
    assert floor.flight("a").attempt == attempt
    floor.publisher.is_available = True
    floor.turn(1000)
    assert floor.arrived() == ["before", "a"]
    assert floor.headers("a")["x-attempt"] == str(attempt + 1)


def test_indeterminate_alone_counts_no_failure_but_is_unsure(floor: Floor) -> None:
    answer(floor, UNKNOWN)
    floor.schedule("a")
    floor.turn(1000)
    assert (floor.flight("a").failures, floor.flight("a").unsure) == (0, True)
    assert [each.mode for each in floor.lane.targets.held()] == ["held"]
    assert floor.stores["r"].cancel("a") == "in_flight"
    assert floor.state("a") is None


def test_indeterminate_beside_a_confirm_of_its_batch_counts_no_failure(floor: Floor) -> None:
    floor.publisher.script(lambda delivery: UNKNOWN if delivery.id == "a" else None)
    floor.schedule("a", "b")
    floor.turn(1000)
    assert floor.flight("a").failures == 0
    assert floor.arrived() == ["b"]


@pytest.mark.parametrize(
    ("confirms", "later_ms", "failures"), [("t", 7499, 0), ("t", 7500, 1), ("another", 7500, 0)]
)
def test_indeterminate_counts_if_a_batch_of_half_a_deadline_later_is_confirmed(
    floor: Floor, confirms: str, later_ms: int, failures: int
) -> None:
    def no_word_meanwhile(delivery: Delivery) -> Outcome | None:
        if delivery.id != "a":
            return None
        floor.advance(later_ms)
        target = Target("memory", topic=confirms)
        floor.lane.judge(floor.lane.targets.of(target), [CONFIRMED], floor.monotonic())
        return UNKNOWN

    floor.publisher.script(no_word_meanwhile)
    floor.schedule("a")
    floor.turn(1000)
    assert floor.flight("a").failures == failures


def test_defective_publisher_leaves_every_envelope_unsure(floor: Floor) -> None:
    def explode(_: Delivery) -> Outcome:
        raise ZeroDivisionError("defect")

    floor.publisher.script(explode)
    floor.schedule("a", "b")
    floor.turn(1000)
    assert [floor.flight(each).unsure for each in "ab"] == [True, True]
    assert floor.flight("a").error_class == "ZeroDivisionError"


def test_keep_dead_letter_that_cannot_be_sent_until_it_can(floor: Floor) -> None:
    floor.publisher.script(lambda delivery: REJECTED if delivery.target.topic == "t" else MISSING)
    floor.schedule(*"abc")
    floor.turn(1000)
    for _ in range(50):
        floor.turn(1000)
    assert [floor.state(each) for each in "abc"] == ["dead"] * 3
    answer(floor, None)
    for _ in range(20):
        floor.turn(1000)
    assert sorted(floor.arrived("dlt")) == ["a", "b", "c"]


def test_claim_beyond_the_window_of_the_lane_waits_for_room(
    build_floor: Callable[..., Floor],
) -> None:
    floor = build_floor(worker={"in_flight": 6, "batch": 2})
    floor.schedule(*(f"r{n}" for n in range(50)))
    floor.schedule(*(f"o{n}" for n in range(50)), route="other")
    floor.advance(1000)
    floor.publisher.pause()
    with ThreadPoolExecutor(6) as threads:
        worker = floor.new_worker(threads)
        for _ in range(10):
            worker.run_once()
        assert sum(store.next().unack for store in floor.stores.values()) == 2  # one batch
        floor.publisher.resume()
    floor.turn()
    assert len({each.id for each in floor.publisher.delivered}) == 100


@pytest.mark.parametrize("late_ms", [14_000, 20_000])
def test_publish_with_too_little_lease_left_is_not_begun(floor: Floor, late_ms: int) -> None:
    floor.schedule("a")
    begin_late(floor, late_ms)
    is_late = late_ms > 14_500
    assert floor.arrived() == ([] if is_late else ["a"])
    assert (floor.state("a") == "ready") is is_late


def test_publish_begun_too_late_beside_a_damaged_record_gives_one_back_and_buries_it(
    floor: Floor,
) -> None:
    floor.schedule("a", "b")
    floor.damage("a")
    begin_late(floor, 15_000)
    assert (floor.state("a"), floor.state("b")) == ("dead", "ready")


def begin_late(floor: Floor, late_ms: int) -> None:
    """Claim what is due, and begin to publish it so much later."""
    floor.advance(1000)
    with ThreadPoolExecutor(1) as threads:
        worker = floor.new_worker(threads)
        gate = threading.Event()
        threads.submit(gate.wait, 30)
        worker.run_once()
        floor.advance(late_ms)
        gate.set()
        threads.submit(gate.wait).result()  # behind the batch, which a drain could still cancel
        worker.drain(10)
