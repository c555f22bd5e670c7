"""What a worker set aside goes on without it, once its target is well again."""

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from duebridge.ports.publisher import Outcome, Reason, Verdict
from duebridge.store.delay_store import DelayStore
from duebridge.store.server.connection import Connection, open_connection
from duebridge.store.workers import Workers
from duebridge.worker.loop import RESUME_ROWS
from duebridge.worker.orphans import LOOKS, NAMED_LOOKS, Orphans
from duebridge.worker.process import Runner
from duebridge.worker.reporting.status import StatusWriter
from duebridge.worker.worker import Worker
from duebridge_connectors.memory import MemoryPublisher
from tests.acceptance.targets import Targets
from tests.acceptance.works import WITHIN_S, Works, started
from tests.support.command import wait_until
from tests.support.floor import Floor

MISSING = Outcome(Verdict.TARGET_FAILED, Reason.TARGET_MISSING, "Missing", "no such topic")
IDS = [f"a{n:04d}" for n in range(1700)]


class Pair(NamedTuple):
    """Worker `one` has set aside what is for the topic `gone`; `other` never tried it."""

    targets: Targets
    one: Worker
    other: Worker
    workers: Workers
    orphans: Orphans

    def look(self, times: int) -> None:
        """Let the other worker look, and turn alone."""
        self.targets.workers[:] = [self.other]
        for _ in range(times):
            self.targets.run(8000, step_ms=1000)
            self.orphans.run_once()
            self.targets.run(2000, step_ms=50)

    def mend(self) -> None:
        """Let the target be well again."""
        del self.targets.outcomes["gone"]

    def gone(self) -> list[str]:
        """Return what has arrived."""
        return sorted(self.targets.gone("gone"))

    def set_aside(self) -> int:
        """Return how many wait for the end of `hold`, or for the target."""
        return self.targets.floor.stores["r"].stats().poll.retry


@pytest.fixture
def pair(build_floor: Callable[..., Floor], connection: Connection) -> Pair:
    own = [{"broker": "memory", "topic": "*"}]
    floor = build_floor(allow_targets=own, on_target_error={"hold": "24h"})
    targets = Targets(floor)
    one, other = targets.workers[0], targets.another_worker()
    targets.workers.append(other)
    targets.run(1000)  # whoever starts resumes all
    targets.workers[:] = [one]
    targets.outcomes["gone"] = MISSING
    targets.schedule(*IDS, topic="gone")
    targets.run(3000)
    workers = Workers(connection, floor.stores["r"].shard.namespace)
    return Pair(targets, one, other, workers, Orphans(other, workers))


def test_look_resumes_what_a_worker_that_left_had_set_aside(pair: Pair) -> None:
    pair.mend()
    pair.look(LOOKS - 1)
    assert pair.gone() == []
    pair.look(1)
    assert pair.gone() == IDS


def test_look_while_the_broker_is_away_resumes_for_workers_that_reach_it(pair: Pair) -> None:
    """Only the one with the gauge lease looks; it may be the only one that is cut off."""
    pair.other.lanes["memory"].is_open = False
    pair.look(LOOKS)
    assert pair.set_aside() == 0


def test_look_while_the_broker_is_away_leaves_alone_what_another_holds(pair: Pair) -> None:
    """It would not find out that the target still fails."""
    pair.other.lanes["memory"].is_open = False
    StatusWriter(pair.one, pair.workers, pair.targets.floor.monotonic).run_once()
    pair.look(2 * NAMED_LOOKS)
    assert pair.set_aside() == len(IDS)


def test_look_leaves_alone_what_a_live_worker_holds_until_that_leaves(pair: Pair) -> None:
    writer = StatusWriter(pair.one, pair.workers, pair.targets.floor.monotonic)
    writer.run_once()
    pair.mend()
    pair.look(NAMED_LOOKS - 1)
    assert pair.gone() == []
    pair.workers.remove(writer.id)
    pair.look(1)
    assert pair.gone() == IDS


def test_look_resumes_once_what_another_names_for_long_and_probes_it_from_then_on(
    pair: Pair,
) -> None:
    """The other may know no envelope to try the target with."""
    StatusWriter(pair.one, pair.workers, pair.targets.floor.monotonic).run_once()
    tries = len(pair.targets.tried("gone"))
    pair.look(NAMED_LOOKS)
    assert tries < len(pair.targets.tried("gone")) <= tries + RESUME_ROWS + 2
    pair.look(5)
    assert [each.target.topic for each in pair.other.lanes["memory"].targets.held()] == ["gone"]
    pair.mend()
    pair.targets.run(2000, step_ms=10)
    assert pair.gone() == IDS


def test_look_without_the_right_to_read_the_records_resumes_all_the_same(
    pair: Pair, connection: Connection
) -> None:
    rights = ["+@all", "-mget"]
    client: Any = connection.client
    client.acl_setuser("poor", enabled=True, nopass=True, keys=["*"], commands=rights)
    path = client.connection_pool.connection_kwargs["path"]
    with closing(open_connection(f"unix://poor:x@{path}")) as poor:
        namespace = pair.targets.floor.stores["r"].shard.namespace
        StatusWriter(pair.one, pair.workers, pair.targets.floor.monotonic).run_once()
        pair = pair._replace(orphans=Orphans(pair.other, Workers(poor, namespace)))
        pair.mend()
        pair.look(LOOKS)
    assert pair.gone() == IDS


def test_look_at_a_target_held_here_has_its_probes_search_the_shard(pair: Pair) -> None:
    pair.look(LOOKS)  # it is tried, and held here too
    (health,) = pair.other.lanes["memory"].targets.held()
    tries = len(pair.targets.tried("gone"))
    health.aside.clear()
    pair.orphans.run_once()
    assert [shard.route for shard in health.aside] == ["r"]
    pair.targets.run(2000)
    assert len(pair.targets.tried("gone")) <= tries + 2, "the crowd is not tried again"


def test_look_without_a_retry_asks_the_store_nothing(
    floor: Floor, connection: Connection, calls: Counter[str]
) -> None:
    floor.schedule("later", delay="1h")
    floor.turn()
    calls.clear()
    Orphans(floor.worker, Workers(connection, floor.stores["r"].shard.namespace)).run_once()
    assert calls == {}


def test_look_is_for_the_process_that_has_the_gauge_lease(
    build_floor: Callable[..., Floor], connection: Connection, calls: Counter[str]
) -> None:
    floor = build_floor(exports_gauges=True)
    floor.publisher.script(lambda _: MISSING)
    floor.schedule("a")
    floor.turn(1000)
    floor.turn(1000)
    orphans = Orphans(floor.worker, Workers(connection, floor.stores["r"].shard.namespace))
    calls.clear()
    orphans.run_once()
    assert calls == {"count_aside": 1}
    floor.advance(60_000)  # its lease has ended
    orphans.run_once()
    assert calls == {"count_aside": 1}


@pytest.fixture
def works(embedded: Path) -> Iterator[Works]:
    with started(Works(f"embedded:{embedded}", {"r": "a/t"})) as works:
        yield works


def test_process_delivers_what_another_had_set_aside_that_drained(
    works: Works, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("duebridge.worker.orphans.ORPHANS_EVERY_S", 0.05)
    stays = {name: MemoryPublisher() for name in works.publishers}
    stays["a"].is_available = False  # what is due goes to the other
    runner = Runner(works.config, open_connection(works.url), stays)
    runner.start()
    try:
        wait_until(lambda: not any(view.resuming for view in runner.views()), "its start")
        works.publishers["a"].script(lambda _: MISSING)
        works.schedule("a")
        health = works.runner.lanes["a"].targets
        wait_until(lambda: any(each.aside for each in health.held()), "it to be set aside")
        works.runner.drain()
        stays["a"].is_available = True
        assert stays["a"].deliveries_arrive(1, WITHIN_S)
    finally:
        runner.drain()


def test_look_at_a_target_that_still_fails_leaves_the_rest_set_aside(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    moved: list[int] = []
    plain = DelayStore.resume

    def resume(self, *given):
        reply = plain(self, *given)
        moved.append(reply.moved)
        return reply

    monkeypatch.setattr(DelayStore, "resume", resume)
    pair.look(LOOKS)
    assert 0 < sum(moved) <= 2 * RESUME_ROWS
