"""Dead letters go the way of any envelope, to a target of their own, in nobody's way."""

import threading
from collections.abc import Callable
from concurrent.futures import Executor, Future
from pathlib import Path
from typing import Any

import pytest

from duebridge.ports.publisher import Delivery, Outcome, Reason, Verdict
from duebridge.store.server.connection import Connection, open_connection
from duebridge.worker.process import Runner
from duebridge.worker.shard import READDRESS_EVERY_S, ShardView
from duebridge.worker.worker import Worker
from tests.acceptance.site import memory_config
from tests.acceptance.targets import Crew
from tests.acceptance.works import WITHIN_S, Works, started
from tests.support.desk import names
from tests.support.floor import Floor
from tests.support.servers import wait_until

TOO_LARGE = Outcome(Verdict.REJECTED, Reason.TOO_LARGE, "TooLarge", "over 1 MiB")
MISSING = Outcome(Verdict.TARGET_FAILED, Reason.TARGET_MISSING, "Missing", "no such topic")
SILENT = Outcome(Verdict.INDETERMINATE, error_class="Timeout", error_message="no confirm")
FOR_EVER = 2**52


class Letters(Crew):
    """A floor on which everything scheduled dies; `refuse` says how letters end."""

    def __init__(self, floor: Floor) -> None:
        super().__init__(floor)
        self.store = floor.stores["r"]
        self.tries: list[str] = []
        self.refuse: Callable[[str], Outcome | None] = lambda _: None
        floor.publisher.script(self._answer)

    def _answer(self, delivery: Delivery) -> Outcome | None:
        if delivery.target.topic == "t":
            return None if delivery.id.startswith("well") else TOO_LARGE
        self.tries.append(delivery.id)
        return self.refuse(delivery.id)

    def is_kept_for_good(self, id: str) -> bool:
        entry = self.store.get(id)
        return entry is not None and entry.score_ms >= FOR_EVER


@pytest.fixture
def letters(floor: Floor) -> Letters:
    return Letters(floor)


def test_letters_rejected_for_good_keep_nobody_and_are_not_tried_again(letters: Letters) -> None:
    letters.refuse = lambda name: TOO_LARGE if name.startswith("bad") else None
    letters.floor.schedule(*names(150, "bad"), *names(50, "good"), delay="1ms")
    letters.run(2000)
    assert sorted(letters.floor.arrived("dlt")) == names(50, "good")
    assert all(letters.is_kept_for_good(each) for each in names(150, "bad"))
    letters.run(60_000, step_ms=1000)
    assert len(letters.tries) == 200


def test_letters_that_fail_do_not_keep_the_sendable_ones(letters: Letters) -> None:
    """Refused one by one, beside others that are confirmed: each backs off by itself."""
    failed = Outcome(Verdict.FAILED, error_class="E", error_message="no")
    letters.refuse = lambda name: failed if name.startswith("bad") else None
    letters.floor.schedule(*names(150, "bad"), *names(50, "good"), delay="1ms")
    letters.run(2000)
    assert sorted(letters.floor.arrived("dlt")) == names(50, "good")
    letters.run(120_000, step_ms=1000)
    assert len(letters.tries) < 150 * 9 + 50, "1 + 2 + 4 … s between"
    assert {letters.floor.state(each) for each in names(150, "bad")} == {"dead"}


@pytest.mark.parametrize("outcome", [MISSING, SILENT])
def test_letters_of_a_held_target_try_it_once_a_second_and_then_go(
    letters: Letters, outcome: Outcome
) -> None:
    letters.refuse = lambda _: outcome
    letters.floor.schedule(*names(300), delay="1ms")
    letters.run(20_000)
    assert len(letters.tries) <= 250 + 50 + 22
    letters.floor.schedule("well", delay="1ms")
    letters.run(250)
    assert letters.floor.arrived() == ["well"]
    letters.refuse = lambda _: None
    letters.run(2250, step_ms=50)
    assert sorted(letters.floor.arrived("dlt")) == names(300)


def floor_on(connection: Connection, namespace: str, letters_to: str | None) -> Floor:
    """A worker process of the same route, with another dead-letter target."""
    route: dict[str, Any] = {"target": {"broker": "memory", "topic": "t"}}
    if letters_to:
        route["dead_letter"] = {"broker": "memory", "topic": letters_to}
    return Floor(connection, namespace, memory_config({"r": route}))


@pytest.mark.parametrize("first", [None, "dlt"])
def test_letters_that_waited_go_once_the_route_gains_another_target(
    connection: Connection, first: str | None
) -> None:
    namespace = f"test-another-{first}"
    before = Letters(floor_on(connection, namespace, first))
    before.refuse = lambda _: TOO_LARGE
    before.floor.schedule(*names(20), delay="1ms")
    before.run(1000)
    assert before.floor.arrived("dlt") == []
    after = Letters(floor_on(connection, namespace, "other"))
    after.floor.advance(2000)
    after.run(1000)
    assert sorted(after.floor.arrived("other")) == names(20)


def test_letters_that_a_process_without_a_target_adds_go_within_seconds(
    connection: Connection,
) -> None:
    """A rolling update: the new process is at work while the old one still buries."""
    after = Letters(floor_on(connection, "test-rolling", "dlt"))
    after.run(1000)
    before = Letters(floor_on(connection, "test-rolling", None))
    before.floor.schedule(*names(3), delay="1ms")
    before.run(1000)
    after.floor.advance(1000)
    after.run(2 * round(READDRESS_EVERY_S * 1000), step_ms=1000)
    assert sorted(after.floor.arrived("dlt")) == names(3)


class Later(Executor):
    """Keeps what is submitted until `run`."""

    def __init__(self) -> None:
        self._tasks: list[tuple[Future[Any], Callable[[], Any]]] = []

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> "Future[Any]":
        future: Future[Any] = Future()
        self._tasks.append((future, lambda: fn(*args, **kwargs)))
        return future

    def run(self) -> None:
        while self._tasks:
            future, call = self._tasks.pop(0)
            if future.set_running_or_notify_cancel():
                future.set_result(call())


@pytest.fixture
def later(letters: Letters) -> Later:
    """The threads of a worker that runs only what it is told to, with one letter submitted."""
    later, floor = Later(), letters.floor
    letters.refuse = lambda _: MISSING
    floor.schedule("a", delay="1ms")
    letters.run(250)
    letters.refuse, letters.tries = (lambda _: None), []
    floor.lane = floor._lane(later)
    views: list[ShardView] = list(floor.views.values())
    floor.worker = Worker({"memory": floor.lane}, views, floor.monotonic)
    letters.workers = [floor.worker]
    floor.lane.ping()
    later.run()
    floor.advance(2000)
    letters.turn()
    return later


@pytest.mark.parametrize(("late_ms", "is_sent"), [(14_000, True), (16_000, False)])
def test_letter_starts_only_while_it_can_be_settled_within_its_lease(
    letters: Letters, later: Later, late_ms: int, is_sent: bool
) -> None:
    letters.floor.advance(late_ms)
    later.run()
    assert letters.tries == ["a"] * is_sent
    assert (letters.floor.state("a") is None) == is_sent


def test_drop_of_a_queued_letter_is_possible_after_a_drain(letters: Letters, later: Later) -> None:
    releasing = threading.Thread(target=letters.floor.worker.drain, args=(5.0,))
    releasing.start()
    wait_until(lambda: len(later._tasks) >= 2, "the drain to give the letter back")
    later.run()
    releasing.join(5)
    assert letters.tries == []
    assert letters.store.drop(["a"]) == ["dropped"]


@pytest.mark.parametrize(
    ("outcome", "tries_in_12s", "is_for_good"), [(MISSING, (3, 4), False), (TOO_LARGE, (1,), True)]
)
def test_letter_of_a_damaged_record_is_kept_until_its_target_takes_it(
    letters: Letters, outcome: Outcome, tries_in_12s: tuple[int, ...], is_for_good: bool
) -> None:
    letters.refuse = lambda _: outcome
    letters.floor.schedule("a", delay="1ms")
    letters.floor.damage("a")
    letters.run(12_000)
    assert len(letters.tries) in tries_in_12s
    assert letters.is_kept_for_good("a") == is_for_good
    if not is_for_good:
        letters.refuse = lambda _: None
        letters.run(6000)
        assert letters.floor.headers("a", "dlt")["x-dlq-reason"] == "poison"


def test_letter_of_a_newer_record_waits_for_a_newer_worker(letters: Letters) -> None:
    letters.refuse = lambda _: MISSING
    letters.floor.schedule("a", delay="1ms")
    letters.run(250)
    client: Any = letters.store._connection.client
    key = letters.store.shard.key("envelopes")
    record = client.hget(key, "a")
    client.hset(key, "a", b"\x09" + record[1:])
    letters.tries.clear()
    letters.refuse = lambda _: None
    letters.run(10_000)
    assert (letters.tries, letters.floor.state("a")) == ([], "dead")
    client.hset(key, "a", record)
    letters.floor.views["r"].is_unreadable = False
    letters.run(6000)
    assert letters.floor.arrived("dlt") == ["a"]


# --- with real threads ---


@pytest.fixture
def works(embedded: Path) -> Callable[..., Works]:
    """Make works whose envelopes die unless they are `well…`; their letters go to `letters_to`."""

    def make(letters_to: str) -> Works:
        broker, topic = letters_to.split("/")
        dead_letter = {"broker": broker, "topic": topic}
        works = Works(f"embedded:{embedded}", {"r": "a/t"}, dead_letter=dead_letter)
        works.publishers["a"].script(_kill)
        return works

    return make


def _kill(delivery: Delivery) -> Outcome | None:
    is_letter = delivery.target.topic != "t"
    return None if is_letter or delivery.id.startswith("well") else TOO_LARGE


@pytest.mark.parametrize("letters_to", ["b/dlt", "a/dlt"])
def test_letters_that_nobody_confirms_do_not_delay_healthy_traffic(
    works: Callable[..., Works], letters_to: str
) -> None:
    """The broker of the letters answers pings; on the same broker only their topic is silent."""
    made = works(letters_to)
    is_over = threading.Event()

    def answer(delivery: Delivery) -> Outcome | None:
        if delivery.target.topic == "dlt":
            is_over.wait(WITHIN_S)
            return SILENT
        return _kill(delivery)

    for each in made.publishers.values():
        each.script(answer)
    with started(made):
        made.schedule(*names(100, "dead"))
        wait_until(lambda: made.runner.views()[0].poll.dead >= 50, "letters")
        lane = made.runner.lanes[letters_to[0]]
        wait_until(lambda: lane.letters > 0, "a letter to be out")
        made.schedule(*names(60, "well"))
        assert made.publishers["a"].deliveries_arrive(60, within_s=WITHIN_S / 2)
        is_over.set()


def test_letters_are_never_twice_over_many_starts_and_drains(
    works: Callable[..., Works], embedded: Path
) -> None:
    made = works("b/dlt")
    ids = names(270)
    runners = [made.runner]
    for n in range(27):
        for publisher in made.publishers.values():
            publisher.reopen(15.0)
        runners[-1].start()
        made.schedule(*ids[n * 10 : n * 10 + 10])
        assert runners[-1].drain()
        connection = open_connection(f"embedded:{embedded}")
        runners.append(Runner(made.config, connection, made.publishers))
    for publisher in made.publishers.values():
        publisher.reopen(15.0)
    made.runner = runners[-1]
    with started(made):
        made.await_arrivals(270, "b")
    assert sorted(name for name, _ in made.arrived("b")) == ids
