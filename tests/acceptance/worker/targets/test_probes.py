"""Which held target is tried next, when there are more of them than threads for probes."""

from collections.abc import Callable
from concurrent.futures import Executor, Future
from typing import Any

import pytest

from duebridge.envelope import Target
from duebridge.ports.publisher import Outcome, Reason, Verdict
from duebridge.store.keys import Shard
from duebridge.worker.batch import Batch
from duebridge.worker.lanes.lane import Lane, OutgoingBatch, TargetGroup
from duebridge.worker.lanes.targets import TargetHealth
from duebridge.worker.lanes.window import Load
from duebridge.worker.worker import Worker
from tests.acceptance.targets import Targets
from tests.support.floor import Floor, InlineExecutor

MISSING = Outcome(Verdict.TARGET_FAILED, Reason.TARGET_MISSING, "Missing", "no such topic")
SILENT = Outcome(Verdict.INDETERMINATE, error_class="Timeout", error_message="no confirm")
OWN = [{"broker": "memory", "topic": "*"}]
DEADLINE_MS = 10_000
SIDE_THREADS = 2
WORKER = {"in_flight": 80, "batch": 20, "publish_deadline": f"{DEADLINE_MS}ms"}  # 4 threads
QUIET = [f"quiet{n}" for n in range(10)]


@pytest.fixture
def targets(build_floor: Callable[..., Floor]) -> Targets:
    floor = build_floor(worker=WORKER, allow_targets=OWN, on_target_error={"hold": "10m"})
    return Targets(floor)


class Deadlines(Executor):
    """Threads of a lane: batches to silent topics keep theirs until the publish deadline."""

    def __init__(self, targets: Targets) -> None:
        self._targets = targets
        self.out: list[tuple[int, Callable[..., Any], Batch]] = []
        self.most_side = 0

    def submit(self, fn: Callable[..., Any], /, *args: Any, **_: Any) -> "Future[Any]":
        future: Future[Any] = Future()
        (batch,) = args
        topics = {str(group.health.target.topic) for group in batch.outgoing.groups}
        if any(self._targets.outcomes.get(each) is SILENT for each in topics):
            self.out.append((self._targets.floor.elapsed_ms + DEADLINE_MS, fn, batch))
        else:
            future.set_result(fn(batch))
        side = sum(batch.outgoing.is_side_batch for _, _, batch in self.out)
        self.most_side = max(self.most_side, side)
        return future

    def end_due(self) -> None:
        """End the batches whose deadline has come."""
        now_ms = self._targets.floor.elapsed_ms
        ended = [each for each in self.out if each[0] <= now_ms]
        self.out = [each for each in self.out if each[0] > now_ms]
        for _, run, batch in ended:
            run(batch)


@pytest.fixture
def deadlines(targets: Targets) -> Deadlines:
    """Let silent topics hold up the threads of the worker."""
    floor, deadlines = targets.floor, Deadlines(targets)
    settings, settlers = floor.config.worker, InlineExecutor()
    floor.lane = Lane("memory", floor.publisher, settings, deadlines, settlers, floor.monotonic)
    floor.worker = Worker({"memory": floor.lane}, list(floor.views.values()), floor.monotonic)
    targets.workers[:] = [floor.worker]
    return deadlines


def run(targets: Targets, deadlines: Deadlines, ms: int, topics: list[str] | None = None) -> None:
    """Let time pass; at each step one envelope more is due, for the topics in turn."""
    for step in range(ms // 250):
        if topics:
            topic = topics[step % len(topics)]
            targets.schedule(f"{topic}-{targets.floor.elapsed_ms}", topic=topic)
        targets.floor.advance(250)
        deadlines.end_due()
        targets.turn()


def hold_all(targets: Targets, deadlines: Deadlines, outcome: Outcome) -> None:
    """Have ten silent targets held, and then one that fails as given."""
    targets.outcomes |= {**dict.fromkeys(QUIET, SILENT), "well": outcome}
    for topic in QUIET:
        targets.schedule(f"{topic}-a", f"{topic}-b", topic=topic)
    run(targets, deadlines, 2000)
    targets.schedule("well-a", "well-b", topic="well")
    run(targets, deadlines, 2 * DEADLINE_MS + 5000)
    held = targets.floor.lane.targets.held()
    assert sorted(str(each.target.topic) for each in held) == [*QUIET, "well"]


def test_probe_reaches_a_recovered_target_behind_ten_silent_ones(
    targets: Targets, deadlines: Deadlines
) -> None:
    hold_all(targets, deadlines, SILENT)
    del targets.outcomes["well"]
    silent_threads = SIDE_THREADS - 1
    run(targets, deadlines, (len(QUIET) + 1) * (DEADLINE_MS + 1000) // silent_threads)
    assert sorted(targets.gone("well")) == ["well-a", "well-b"]


def test_probe_of_a_target_that_answers_waits_for_no_silent_one(
    targets: Targets, deadlines: Deadlines
) -> None:
    hold_all(targets, deadlines, MISSING)
    tries = len(targets.tried("well"))
    run(targets, deadlines, 10_000)
    assert len(targets.tried("well")) >= tries + 8
    del targets.outcomes["well"]
    run(targets, deadlines, 3000)
    assert sorted(targets.gone("well")) == ["well-a", "well-b"]


def test_probes_by_arriving_envelopes_keep_to_the_threads_of_probes(
    targets: Targets, deadlines: Deadlines
) -> None:
    hold_all(targets, deadlines, SILENT)
    deadlines.most_side = 0
    run(targets, deadlines, 30_000, QUIET)
    assert 0 < deadlines.most_side <= SIDE_THREADS


def held_in(lane: Lane, topic: str, shard: Shard) -> TargetHealth:
    """Hold a target for which a shard has envelopes."""
    health = lane.targets.of(Target("memory", topic=topic))
    lane.judge(health, [MISSING], 0.0)
    lane.note_aside(health, shard)
    return health


def test_thread_that_becomes_free_is_left_to_the_shard_that_waited_longer(
    targets: Targets,
) -> None:
    floor, lane = targets.floor, targets.floor.lane
    one, other = (view.shard for view in floor.views.values())
    first = held_in(lane, "first", one)
    floor.advance(500)
    second = held_in(lane, "second", other)
    group = TargetGroup(lane.targets.of(Target("memory", topic="dlt")), [], Load())
    letters = [OutgoingBatch([group], is_letter=True) for _ in range(SIDE_THREADS)]
    for each in letters:
        lane.begin(each)
    floor.advance(2000)
    assert (lane.probes_due(one), lane.probes_due(other)) == ([], [])
    lane.end(letters[0])
    assert (lane.probes_due(one), lane.probes_due(other)) == ([first], [])
    floor.advance(1000)
    assert (lane.probes_due(one), lane.probes_due(other)) == ([first], [second])
