"""No thread of a worker dies quietly: what a client or the store raises is logged; work goes on."""

from collections.abc import Iterator, Sequence
from itertools import cycle
from pathlib import Path
from threading import Event
from typing import Any

import pytest
from structlog.testing import capture_logs

from duebridge.ports.publisher import Delivery, Outcome, Reason, Verdict
from duebridge.store import wakeup
from duebridge.store.keys import Shard
from duebridge.store.wakeup import WakeListener
from duebridge.worker.reporting.store_monitor import StoreMonitor
from tests.acceptance.works import WITHIN_S, Works, started
from tests.support.servers import wait_until

ERRORS = [OSError(24, "too many open files"), MemoryError(), RuntimeError("no new thread")]
CALLS = ["next", "claim", "readdress", "resume", "reclaim", "shunt"]
SETTLEMENTS = ["ack", "retry", "bury", "release", "set_aside"]
TIMES = 3


class Faulty:
    """Passes every call on, but raises in the first few of one method."""

    def __init__(self, within: Any, method: str, error: Exception) -> None:
        self._within, self._method, self._error = within, method, error
        self.raised = 0

    def __getattr__(self, name: str) -> Any:
        if name != self._method or self.raised >= TIMES:
            return getattr(self._within, name)
        return self._raise

    def _raise(self, *_: Any, **__: Any) -> None:
        self.raised += 1
        raise self._error


@pytest.fixture
def works(embedded: Path, monkeypatch: pytest.MonkeyPatch) -> Works:
    monkeypatch.setattr("duebridge.worker.loop.FAILED_PAUSE_S", 0.02)
    monkeypatch.setattr("duebridge.worker.lanes.lane.PING_EVERY_S", 0.02)
    quick: dict[str, Any] = {"retry": {"initial": "1ms", "jitter": "none"}, "lease": "24s"}
    letters = {"broker": "b", "topic": "dlt"}
    return Works(f"embedded:{embedded}", {"r": "a/t"}, dead_letter=letters, **quick)


@pytest.fixture
def logs() -> Iterator[list[Any]]:
    with capture_logs() as logs:
        yield logs


@pytest.mark.parametrize(
    ("method", "event", "is_back", "error"),
    [
        ("ping", "lane_stopped", "lane_open", ERRORS[0]),
        ("publish", "publisher_failed", "publisher_works", ERRORS[1]),
    ],
)
def test_lane_goes_on_after_its_client_raised(
    works: Works, logs: list[Any], method: str, event: str, is_back: str, error: Exception
) -> None:
    lane = works.runner.lanes["a"]
    faulty = lane._publisher = Faulty(lane._publisher, method, error)
    with started(works):
        if method == "publish":
            for n in range(TIMES):
                works.schedule(f"early{n}")
                wait_until(lambda n=n: faulty.raised > n, "a publish")  # type: ignore[misc]
        works.schedule("a", "b")
        wanted = 2 if method == "ping" else 2 + TIMES
        assert works.publishers["a"].deliveries_arrive(wanted, WITHIN_S)
        assert works.runner.is_alive
    (line,) = (each for each in logs if each["event"] == event)
    (back,) = (each for each in logs if each["event"] == is_back)
    assert back["failures"] == TIMES
    assert line.get("exc_info", False) is (method == "publish")


class Careless:
    """Passes every call on, but leaves the last outcome of the first publish out."""

    def __init__(self, within: Any) -> None:
        self._within = within
        self.published = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._within, name)

    def publish(self, batch: Sequence[Delivery]) -> Sequence[Outcome]:
        self.published += 1
        outcomes: Sequence[Outcome] = self._within.publish(batch)
        return outcomes[:-1] if self.published == 1 else outcomes

    def close(self) -> None:
        raise ERRORS[2]


def test_lane_tries_again_after_its_client_left_an_outcome_out(
    works: Works, logs: list[Any]
) -> None:
    lane = works.runner.lanes["a"]
    lane._publisher = Careless(lane._publisher)  # type: ignore[assignment]
    works.schedule("a", "b")
    with started(works):
        assert works.publishers["a"].deliveries_arrive(4, WITHIN_S)
    told = [each for each in logs if each["event"] in ("publisher_failed", "publisher_not_closed")]
    assert [each["event"] for each in told] == ["publisher_failed", "publisher_not_closed"]
    assert "one outcome per delivery, 2; got 1" in told[0]["error"]


def test_store_monitor_goes_on_after_a_sample_raised(
    works: Works, logs: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("duebridge.worker.reporting.store_monitor.AGAIN_S", 0.01)
    raised = iter(ERRORS)

    def absent() -> dict[str, int]:
        if (given := next(raised, None)) is not None:
            raise given
        return {"gone": 7}

    monitor = StoreMonitor(works.connection, absent)
    monitor.start()
    wait_until(lambda: "store_monitor_works" in [each["event"] for each in logs], "a sample")
    monitor.close()
    assert monitor.snapshot is not None
    (line,) = (each for each in logs if each["event"] == "store_monitor_failed")
    (back,) = (each for each in logs if each["event"] == "store_monitor_works")
    assert (line["log_level"], back["failures"]) == ("error", TIMES)


def test_wake_listener_goes_on_after_a_thread_could_not_start(
    works: Works, logs: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(wakeup, "POLL_S", 0.01)
    real, raised = wakeup._HintListener, iter(ERRORS)

    def ear(*given: Any) -> Any:
        if (fault := next(raised, None)) is not None:
            raise fault
        return real(*given)

    monkeypatch.setattr(wakeup, "_HintListener", ear)
    heard = Event()
    listener = WakeListener(works.connection, {Shard(works.namespace, "r", 0): heard.set})
    listener.start()

    minutes = iter(range(10_000, 0, -1))  # each is sooner than all before: only that is a hint

    def is_heard() -> bool:
        works.producer.schedule("r", b"body", delay=f"{next(minutes)}m")
        return heard.wait(0.1)

    wait_until(is_heard, "a hint")
    listener.close()
    assert "wake_listener_failed" in [each["event"] for each in logs]


@pytest.mark.parametrize(("method", "error"), [*zip(CALLS, cycle(ERRORS))])
def test_loop_goes_on_after_a_call_of_the_store_raised(
    works: Works, logs: list[Any], method: str, error: Exception
) -> None:
    (view,) = works.runner.views()
    if method == "reclaim":
        lost_lease(works, view)
    faulty = view.store = Faulty(view.store, method, error)  # type: ignore[assignment]
    if method == "shunt":
        works.publishers["a"].script(_reject_dead)
    with started(works):
        works.schedule("dead", *(f"a{n}" for n in range(300)))
        to_letters = method == "shunt"
        assert works.publishers["a"].deliveries_arrive(300, WITHIN_S)
        if to_letters:
            works.await_arrivals(1, "b")
        wait_until(lambda: failures_over(logs, "loop_recovered") == TIMES, "a turn without one")
        assert works.runner.is_alive
    assert {each["log_level"] for each in logs if each["event"] == "loop_failed"} == {"error"}
    assert faulty.raised == TIMES


def _reject_dead(delivery: Delivery) -> Outcome | None:
    is_dead = delivery.id == "dead" and delivery.target.topic == "t"
    return Outcome(Verdict.REJECTED, Reason.TOO_LARGE, "TooLarge", "no") if is_dead else None


def failures_over(logs: list[Any], event: str) -> int:
    """Return how many failures the lines say that are logged when an outage is over."""
    return sum(each["failures"] for each in list(logs) if each["event"] == event)


def is_over(logs: list[Any], begins: str, ends: str) -> bool:
    """Whether the log has as many ends as beginnings, each one line."""
    events = [each["event"] for each in list(logs)]
    return events.count(begins) == events.count(ends)


def lost_lease(works: Works, view: Any) -> None:
    """Leave an envelope with a lease that ends soon, as a killed worker does."""
    works.schedule("lost")
    wait_until(lambda: view.store.claim(1, 1, promote=1).token, "the claim")


@pytest.mark.parametrize(("method", "error"), [*zip(SETTLEMENTS, cycle(ERRORS))])
def test_lane_goes_on_after_a_settlement_raised(
    works: Works, logs: list[Any], method: str, error: Exception
) -> None:
    """The leases of what was not settled run out; everything else flows, in any number."""
    verdicts = {
        "retry": Outcome(Verdict.FAILED, error_class="E", error_message="no"),
        "bury": Outcome(Verdict.REJECTED, Reason.TOO_LARGE, "E", "no"),
        "release": Outcome(Verdict.UNAVAILABLE, error_class="E", error_message="no"),
        "set_aside": Outcome(Verdict.TARGET_FAILED, Reason.TARGET_MISSING, "E", "no"),
    }
    (view,) = works.runner.views()
    store = view.store
    faulty = view.store = Faulty(store, method, error)  # type: ignore[assignment]
    works.publishers["a"].script(
        lambda delivery: verdicts.get(method) if delivery.id.startswith("early") else None
    )
    with started(works):
        lane = works.runner.lanes["a"]
        n = 0
        while faulty.raised < TIMES:
            works.schedule(f"early{n}")
            n += 1
            wait_until(lambda: store.next().ready + store.next().pending == 0, "a claim")
            wait_until(lambda: not lane.in_flight, "the end of the batch")
            assert n < 50
        works.publishers["a"].script(lambda _: None)
        before = len(works.publishers["a"].delivered)
        works.schedule(*(f"a{k}" for k in range(100)))
        assert works.publishers["a"].deliveries_arrive(before + 100, WITHIN_S)
        wait_until(lambda: not lane.in_flight, "the window to be given back")
        wait_until(lambda: is_over(logs, "batch_failed", "batch_works"), "a batch without one")
        assert works.runner.is_alive
    assert {each["event"] for each in logs} & {"batch_failed", "settle_failed"}
