"""What a worker does about targets that are missing, stalled or full: each is held by itself."""

from collections.abc import Callable
from typing import Any

import pytest

from duebridge.envelope import Target
from duebridge.ports.publisher import Outcome, Reason, Verdict
from tests.acceptance.targets import Targets
from tests.support.desk import names
from tests.support.floor import Floor

MISSING = Outcome(Verdict.TARGET_FAILED, Reason.TARGET_MISSING, "Missing", "no such topic")
REPLICAS = Outcome(Verdict.TARGET_UNAVAILABLE, error_class="Replicas", error_message="1 of 2")
SILENT = Outcome(Verdict.INDETERMINATE, error_class="Timeout", error_message="no confirm")
NACKED = Outcome(Verdict.FAILED, error_class="Nack", error_message="no", is_unsure=True)
OWN = [{"broker": "memory", "topic": "*"}]
HOLD_MS = 3000


Build = Callable[..., Targets]


@pytest.fixture
def build(build_floor: Callable[..., Floor]) -> Build:
    """Make floors with own targets and a short hold."""

    def make(**given: Any) -> Targets:
        hold = given.pop("hold", "3s")
        route = {"allow_targets": OWN, "on_target_error": {"hold": hold}, **given}
        return Targets(build_floor(**route))

    return make


@pytest.fixture
def targets(build: Build) -> Targets:
    return build()


def test_missing_target_among_confirming_ones_is_buried_after_hold_and_never_before(
    targets: Targets,
) -> None:
    targets.outcomes["gone"] = MISSING
    targets.schedule("a", topic="gone")
    for n in range(8 * 4):
        targets.schedule(f"well{n}")
        targets.run(250)
        assert f"well{n}" in targets.gone("t"), "a try holds nobody else"
        first_ms = targets.tried("gone")[0]
        is_buried = targets.gone("dlt") == ["a"]
        held_ms = targets.floor.elapsed_ms - first_ms
        assert is_buried or held_ms < HOLD_MS + 2000
        assert not is_buried or held_ms >= HOLD_MS
    headers = targets.floor.headers("a", "dlt")
    assert headers["x-dlq-reason"] == "target_missing"
    assert len(targets.tried("gone")) <= HOLD_MS // 1000 + 2


def test_missing_target_beside_confirms_of_the_same_target_is_its_envelopes_alone(
    build: Build,
) -> None:
    """Unroutable, such as by a header: the others to the target are confirmed."""
    targets = build(allow_targets=[])
    outcomes = {"odd": MISSING}
    targets.floor.publisher.script(lambda delivery: outcomes.get(delivery.id))
    targets.schedule("odd", delay="1ms")
    for n in range(28):
        targets.schedule(f"well{n}", delay="100ms")
        targets.run(250)
        buried = "odd" in [each.id for each in targets.floor.publisher.delivered]
        assert not buried or n >= HOLD_MS // 250
    assert len(targets.gone("t")) >= 26
    assert targets.floor.state("odd") in (None, "dead")


def test_own_target_of_a_broker_that_the_route_left_is_buried_after_hold_and_published_nowhere(
    targets: Targets,
) -> None:
    targets.floor.schedule("left", delay="1ms", target=Target("former", topic="order-7"))
    targets.schedule("a", topic="u")
    targets.run(HOLD_MS)
    assert targets.gone("dlt") == []
    targets.schedule("b")
    targets.run(2000)
    assert (targets.gone("u"), targets.gone("t"), targets.gone("dlt")) == (["a"], ["b"], ["left"])
    assert targets.tried("order-7") == []
    headers = targets.floor.headers("left", "dlt")
    assert headers["x-dlq-error-message"] == (
        "expected a target of broker 'memory', to which the route has moved; got former:order-7"
    )


def test_expired_heads_do_not_use_up_the_probes(targets: Targets) -> None:
    """A hold longer than the expiry of 390 that wait in front."""
    targets.floor.config.routes["r"].on_target_error.__dict__["hold"] = 40_000
    targets.outcomes["t"] = MISSING
    targets.schedule(*names(390), expires="2s")
    targets.schedule("live", delay="5ms")
    targets.run(6000)
    assert len(targets.tried("t")) >= 5
    del targets.outcomes["t"]
    targets.run(2000)
    assert targets.gone("t") == ["live"]


def test_outage_of_replicas_buries_and_counts_nothing(targets: Targets) -> None:
    targets.outcomes["t"] = REPLICAS
    targets.schedule(*names(200))
    targets.run(180_000, step_ms=1000)
    assert targets.gone("dlt") == []
    flights = [targets.floor.flight(each) for each in names(200)]
    assert {(each.failures, each.held_since_ms) for each in flights} == {(0, 0)}
    assert len(targets.tried("t")) <= 200 + 182 * 2, "the whole crowd is not tried again"
    del targets.outcomes["t"]
    targets.run(2000)
    assert sorted(targets.gone("t")) == names(200)


def test_outage_after_a_missing_target_buries_nobody_past_its_hold(targets: Targets) -> None:
    targets.outcomes["gone"] = MISSING
    targets.schedule(*names(5), topic="gone")
    targets.run(1000)
    targets.outcomes["gone"] = REPLICAS
    targets.run(20_000)
    assert targets.gone("dlt") == []
    assert len(targets.tried("gone")) <= 20 * 6, "each at most once a second"
    del targets.outcomes["gone"]
    targets.run(2000)
    assert sorted(targets.gone("gone")) == names(5)


def test_clock_of_hold_goes_with_the_envelope_that_is_cancelled(targets: Targets) -> None:
    targets.outcomes["t"] = MISSING
    targets.schedule("a")
    targets.run(1000)
    assert targets.floor.stores["r"].cancel("a") == "cancelled"
    targets.run(10_000)
    targets.schedule("b")
    targets.run(HOLD_MS - 250)
    assert targets.gone("dlt") == []
    targets.run(2000)
    assert targets.gone("dlt") == ["b"]


def test_timeouts_of_a_stalled_target_count_nothing_while_another_confirms(
    targets: Targets,
) -> None:
    targets.outcomes["stalled"] = SILENT
    targets.schedule(*names(50), topic="stalled")
    for n in range(120):
        targets.schedule(f"well{n}")
        targets.run(1000, step_ms=1000)
    assert len(targets.gone("t")) == 120
    assert targets.gone("dlt") == []
    flights = [targets.floor.flight(each) for each in names(50)]
    assert {each.failures for each in flights} == {0}
    assert any(each.unsure for each in flights)


@pytest.mark.parametrize("outcome", [MISSING, REPLICAS, SILENT])
def test_healthy_one_behind_10000_of_a_held_target_goes_within_two_seconds(
    build: Build, outcome: Outcome
) -> None:
    targets = build(hold="10m")
    targets.outcomes["gone"] = outcome
    targets.schedule(*names(10_000), topic="gone")
    targets.schedule("well", delay="2ms")
    targets.run(2000)
    assert targets.gone("t") == ["well"]
    assert len(targets.tried("gone")) <= 500 + 3


@pytest.mark.parametrize(
    ("outcome", "count"), [(MISSING, 1), (REPLICAS, 3), (MISSING, 600), (SILENT, 1700)]
)
def test_target_that_is_well_again_gets_all_within_two_seconds(
    build: Build, outcome: Outcome, count: int
) -> None:
    targets = build(hold="10m")
    targets.outcomes["gone"] = outcome
    targets.schedule(*names(count), topic="gone")
    targets.run(5000)
    del targets.outcomes["gone"]
    targets.run(2000, step_ms=50)
    assert sorted(targets.gone("gone")) == names(count)
    assert targets.floor.stores["r"].next().envelopes == 0


@pytest.mark.parametrize("is_restart", [False, True])
def test_target_that_is_well_again_gets_all_by_another_worker(
    build: Build, is_restart: bool
) -> None:
    """Of two workers, both set aside; or a worker starts after the one that set aside is gone."""
    targets = build(hold="10m")
    targets.outcomes["t"] = MISSING
    if not is_restart:
        targets.workers.append(targets.another_worker())
    targets.schedule(*names(1200))
    targets.run(4000)
    del targets.outcomes["t"]
    if is_restart:
        targets.workers[:] = [targets.another_worker()]
    targets.run(2000, step_ms=50)
    assert sorted(targets.gone("t")) == names(1200)


def test_restart_while_the_target_is_missing_starts_no_new_hold(targets: Targets) -> None:
    targets.outcomes["t"] = MISSING
    targets.schedule("a")
    for _ in range(8):
        targets.run(500)
        targets.workers[:] = [targets.another_worker()]
    targets.run(HOLD_MS + 2000 - 4000)
    assert targets.gone("dlt") == ["a"]


def test_routes_that_share_a_target_are_held_and_resumed_together(
    build_floor: Callable[..., Floor],
) -> None:
    targets = Targets(build_floor(target={"broker": "memory", "topic": "o"}))
    targets.outcomes["o"] = MISSING
    targets.schedule(*names(20))
    targets.schedule(*names(20, "b"), route="other")
    targets.run(4000)
    assert len(targets.tried("o")) <= 20 + 20 + 5
    del targets.outcomes["o"]
    targets.run(2000)
    assert sorted(targets.gone("o")) == [*names(20), *names(20, "b")]


def test_hold_longer_than_the_lease_loses_no_lease(build: Build) -> None:
    targets = build(hold="2m", lease="30s")
    targets.outcomes["t"] = MISSING
    targets.schedule(*names(30))
    targets.run(119_000, step_ms=1000)
    assert targets.gone("dlt") == []
    assert {targets.floor.flight(each).expiries for each in names(30)} == {0}
    targets.run(4000)
    assert sorted(targets.gone("dlt")) == names(30)


def test_hold_of_zero_buries_for_a_missing_target_but_not_in_an_outage(build: Build) -> None:
    targets = build(hold="0s")
    targets.outcomes |= {"gone": MISSING, "away": REPLICAS}
    targets.schedule("a", topic="gone")
    targets.schedule("b", topic="away")
    targets.run(20_000)
    assert targets.gone("dlt") == ["a"]
    assert len(targets.tried("away")) <= 25
    del targets.outcomes["away"]
    targets.run(2000)
    assert targets.gone("away") == ["b"]


@pytest.mark.parametrize("between", [NACKED, SILENT, "reschedule"])
def test_clock_of_hold_ends_with_another_outcome_or_a_reschedule(
    build: Build, between: Outcome | str
) -> None:
    """Two holds of 2 s with something between are no hold of 3 s."""
    targets = build()
    store = targets.floor.stores["r"]
    targets.outcomes["gone"] = MISSING
    targets.schedule("a", topic="gone")
    targets.run(2000)
    if between == "reschedule":
        assert store.reschedule("a", "+1", 10**9)[0] == "rescheduled"
    else:
        assert isinstance(between, Outcome)
        targets.outcomes["gone"] = between
        targets.run(1250)
        targets.outcomes["gone"] = MISSING
    targets.run(2000)
    assert targets.gone("dlt") == []
    assert targets.floor.state("a") == "retry"


def test_clock_of_hold_begins_again_with_a_replay(build: Build) -> None:
    targets = build(dead_letter=None)
    store = targets.floor.stores["r"]
    targets.outcomes["t"] = MISSING
    targets.schedule("a")
    targets.run(HOLD_MS + 2000)
    assert targets.floor.state("a") == "dead"
    assert store.replay(["a"]) == ["replayed"]
    targets.run(HOLD_MS - 250)
    assert targets.floor.state("a") == "retry"
    targets.run(2000)
    assert targets.floor.state("a") == "dead"


def test_envelope_never_goes_to_a_target_whose_tag_is_the_same(
    targets: Targets, monkeypatch: pytest.MonkeyPatch
) -> None:
    for topic in ("gone", "away"):
        health = targets.floor.lane.targets.of(Target("memory", topic=topic))
        monkeypatch.setattr(health, "tag", "sametag!")
    targets.outcomes |= {"gone": MISSING, "away": MISSING}
    targets.schedule(*names(5), topic="gone")
    targets.schedule(*names(5, "b"), topic="away")
    targets.run(2500)
    del targets.outcomes["gone"]
    targets.run(6000)
    assert {to for _, name, to in targets.tries if name.startswith("a")} == {"gone"}
    assert {to for _, name, to in targets.tries if name.startswith("b")} <= {"away", "dlt"}


def test_more_targets_than_a_worker_keeps_are_forgotten(
    targets: Targets, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("duebridge.worker.lanes.targets.MOST_TARGETS", 50)
    for n in range(40):
        targets.outcomes[f"gone{n}"] = MISSING
        targets.schedule(f"a{n}", topic=f"gone{n}")
    targets.run(5500)
    assert len(targets.gone("dlt")) == 40
    for n in range(60):
        targets.schedule(f"b{n}", topic=f"well{n}")
        targets.run(250)
    assert sum(targets.gone(f"well{n}") == [f"b{n}"] for n in range(60)) == 60
    assert len(targets.floor.lane.targets._known) <= 50


def test_more_held_targets_than_a_worker_keeps_lose_and_bury_nothing_early(
    targets: Targets, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("duebridge.worker.lanes.targets.MOST_TARGETS", 50)
    known = targets.floor.lane.targets._known
    for n in range(120):
        targets.outcomes[f"gone{n}"] = MISSING
        targets.schedule(f"a{n}", f"b{n}", topic=f"gone{n}")
        targets.run(10, step_ms=10)
        assert len(known) <= 50
    assert targets.gone("dlt") == []
    for n in range(60):
        del targets.outcomes[f"gone{n}"]
    targets.run(HOLD_MS)
    assert all(sorted(targets.gone(f"gone{n}")) == [f"a{n}", f"b{n}"] for n in range(60))
    assert sorted(targets.gone("dlt")) == sorted(f"{x}{n}" for n in range(60, 120) for x in "ab")
    assert len(known) <= 50
