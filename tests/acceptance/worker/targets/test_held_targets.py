"""Held targets: many at once, and those that nobody delivers to any more, whose hold ends."""

from collections.abc import Callable

import pytest
from structlog.testing import capture_logs

from duebridge.envelope import Target
from duebridge.ports.publisher import Outcome, Reason, Verdict
from duebridge.store.delay_store import NO_CURSOR
from duebridge.worker.lanes.targets import ProbeCursor
from duebridge.worker.shard import ShardView
from tests.acceptance.targets import Targets
from tests.support.floor import Floor, let_each_call_take_1_ms
from tests.support.metrics_exposed import registry_of

MISSING = Outcome(Verdict.TARGET_FAILED, Reason.TARGET_MISSING, "Missing", "no such topic")
OWN = [{"broker": "memory", "topic": "*"}]


@pytest.fixture
def targets(build_floor: Callable[..., Floor]) -> Targets:
    return Targets(build_floor(allow_targets=OWN, on_target_error={"hold": "10m"}))


def held(targets: Targets) -> list[str | None]:
    return [each.target.topic for each in targets.floor.lane.targets.held()]


def pages(targets: Targets, topic: str) -> list[str]:
    """Return the roles by which the metric has the target that fails."""
    return [
        sample.labels["role"]
        for metric in registry_of(targets.floor).collect()
        for sample in metric.samples
        if sample.name == "duebridge_target_held" and sample.labels["target"] == f"memory:{topic}"
    ]


def swap_target(targets: Targets, topic: str, broker: str = "memory") -> None:
    """Give the route another topic, as a reload does."""
    floor, (worker,) = targets.floor, targets.workers
    update = {"target": Target(broker, topic=topic)}
    route = floor.config.routes["r"].model_copy(update=update)
    view = ShardView(route, floor.stores["r"], floor.monotonic)
    worker.swap([view, floor.views["other"]])


def test_many_held_targets_take_little_of_each_turn_and_recover_together(
    targets: Targets, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each search for one of them is a call, however many retries it looks at in vain."""
    topics = [f"gone{number}" for number in range(300)]
    targets.outcomes |= dict.fromkeys(topics, MISSING)
    for topic in topics:
        targets.schedule(f"{topic}-a", f"{topic}-b", topic=topic)
    targets.run(1000)
    let_each_call_take_1_ms(targets.floor, monkeypatch)
    assert longest_turn_ms(targets, 3000) <= 100
    targets.outcomes.clear()
    assert longest_turn_ms(targets, 3000) <= 100
    assert {topic: len(targets.gone(topic)) for topic in topics} == dict.fromkeys(topics, 2)


def longest_turn_ms(targets: Targets, ms: int) -> int:
    """Let time pass, with one envelope more for the route's target each 100 ms, which goes soon."""
    floor, (worker,) = targets.floor, targets.workers
    longest, until_ms = 0, floor.elapsed_ms + ms
    while floor.elapsed_ms < until_ms:
        name = f"well{floor.elapsed_ms}"
        targets.schedule(name)
        floor.advance(100)
        worker.wake(floor.views["r"])
        moved = 1
        while moved:
            began_ms = floor.elapsed_ms
            moved = worker.run_once()
            longest = max(longest, floor.elapsed_ms - began_ms)
        assert name in targets.gone("t")
    return longest


def test_end_hold_of_a_mistyped_target_once_a_swap_has_mended_it(targets: Targets) -> None:
    targets.outcomes["t"] = MISSING
    targets.schedule("a", "b", "c")
    targets.run(3000)
    assert pages(targets, "t") == ["route"]
    swap_target(targets, "u")
    with capture_logs() as logs:
        targets.run(15_000, step_ms=1000)
    assert sorted(targets.gone("u")) == ["a", "b", "c"]
    assert (held(targets), pages(targets, "t")) == ([], [])
    ended = [each["target"] for each in logs if each["event"] == "target_forgotten"]
    assert ended == ["memory:t"]


def test_end_hold_of_a_target_once_a_swap_gives_its_route_another_broker(targets: Targets) -> None:
    worker = targets.another_worker("second")
    targets.workers[:] = [worker]
    targets.outcomes["t"] = MISSING
    targets.schedule("a", "b")
    targets.run(3000)
    assert [str(each.target) for each in worker.lanes["memory"].targets.held()] == ["memory:t"]
    swap_target(targets, "u", "second")
    targets.run(15_000, step_ms=1000)
    assert sorted(targets.gone("u")) == ["a", "b"]
    assert worker.lanes["memory"].targets.held() == []


def test_end_hold_of_an_own_target_once_its_envelope_is_cancelled(targets: Targets) -> None:
    targets.outcomes["gone"] = MISSING
    targets.schedule("a", topic="gone")
    targets.run(3000)
    assert pages(targets, "gone") == ["own"]
    assert targets.floor.stores["r"].cancel("a") == "cancelled"
    targets.run(15_000, step_ms=1000)
    assert (held(targets), pages(targets, "gone")) == ([], [])


@pytest.mark.parametrize("hold", ["0s", "3s"])
def test_end_hold_of_an_own_target_once_its_envelope_is_buried(
    build_floor: Callable[..., Floor], hold: str
) -> None:
    targets = Targets(build_floor(allow_targets=OWN, on_target_error={"hold": hold}))
    targets.outcomes["gone"] = MISSING
    targets.schedule("a", topic="gone")
    targets.run(20_000, step_ms=1000)
    assert targets.gone("dlt") == ["a"]
    assert held(targets) == []


def test_end_hold_of_a_target_whose_route_is_removed(targets: Targets) -> None:
    targets.outcomes["t"] = MISSING
    targets.schedule("a")
    targets.run(3000)
    targets.floor.worker.swap([targets.floor.views["other"]])
    targets.run(15_000, step_ms=1000)
    assert held(targets) == []


@pytest.mark.parametrize("allow_targets", [OWN, []])
def test_end_hold_of_a_routes_target_once_nothing_waits_and_hold_it_at_the_next_failure(
    build_floor: Callable[..., Floor], allow_targets: list[object]
) -> None:
    targets = Targets(build_floor(allow_targets=allow_targets, on_target_error={"hold": "10m"}))
    targets.outcomes["t"] = MISSING
    targets.schedule("a")
    targets.schedule("later", delay="10m")
    targets.run(1000)
    assert targets.floor.stores["r"].cancel("a") == "cancelled"
    targets.run(15_000, step_ms=1000)
    assert (held(targets), pages(targets, "t")) == ([], [])
    targets.schedule("b")
    targets.run(1000)
    assert (held(targets), pages(targets, "t")) == (["t"], ["route"])


def test_keep_hold_of_a_routes_target_while_an_envelope_waits_elsewhere(
    build_floor: Callable[..., Floor],
) -> None:
    targets = Targets(build_floor(on_target_error={"hold": "10m"}))
    targets.outcomes["t"] = MISSING
    targets.schedule("a", "b")
    targets.run(1000)
    targets.floor.publisher.is_available = False
    targets.run(3000)
    for health in targets.floor.lane.targets.held():
        health.aside.clear()  # as if another worker had set them aside
    targets.run(60_000, step_ms=1000)
    assert held(targets) == ["t"]


def test_hold_of_a_dead_letter_target_lasts_while_a_letter_waits_and_ends_once_none_does(
    build_floor: Callable[..., Floor],
) -> None:
    targets = Targets(build_floor(on_target_error={"hold": "0s"}))
    targets.outcomes |= {"t": MISSING, "dlt": MISSING}
    targets.schedule("a")
    targets.run(3000)
    assert targets.floor.state("a") == "dead"
    targets.floor.publisher.is_available = False  # so that the letter tries it no more
    targets.run(60_000, step_ms=1000)
    assert held(targets) == ["dlt"]
    targets.floor.stores["r"].drop(["a"])
    targets.run(15_000, step_ms=1000)
    assert held(targets) == []


def test_keep_hold_of_an_own_target_while_its_envelope_waits(targets: Targets) -> None:
    targets.outcomes["gone"] = MISSING
    targets.schedule("a", topic="gone")
    targets.run(1000)
    targets.floor.publisher.is_available = False  # so that nothing tries it for long
    targets.run(60_000, step_ms=1000)
    assert held(targets) == ["gone"]
    targets.floor.publisher.is_available = True
    targets.run(60_000, step_ms=1000)
    assert held(targets) == ["gone"]
    assert targets.floor.state("a") == "retry"


def test_search_that_began_halfway_goes_on_with_the_first_part(targets: Targets) -> None:
    lane, shard = targets.floor.lane, targets.floor.views["r"].shard
    health = lane.targets.of(Target("memory", topic="gone"))
    search = health.aside[shard] = ProbeCursor(("a", "5"))
    lane.end_search(health, shard, search)
    rest = health.aside[shard]
    assert rest.cursor == NO_CURSOR
    lane.end_search(health, shard, rest)
    assert health.aside == {}
