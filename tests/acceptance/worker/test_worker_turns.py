"""Start, turns, windows and waking: what of one message or route must not stop the others."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from duebridge.envelope import Envelope, Target
from duebridge.ports.publisher import Outcome, Reason, Verdict
from duebridge.store.delay_store import DelayStore
from duebridge.store.keys import Shard
from duebridge.store.server.connection import Connection, open_connection
from duebridge.store.server.embedded import stop_embedded
from duebridge.store.wire.record import NEWEST_LAYOUT
from duebridge.worker.process import Runner
from duebridge.worker.reporting.probes import readiness_faults
from tests.acceptance.works import WITHIN_S, Works, started
from tests.support.command import wait_until
from tests.support.floor import Floor
from tests.support.network.proxy import proxied
from tests.support.redis.redis_node import RedisNode

MISSING = Outcome(Verdict.TARGET_FAILED, Reason.TARGET_MISSING, "Missing", "no such topic")
FAILED = Outcome(Verdict.FAILED, error_class="Nack", error_message="not now")


def key(floor: Floor, name: str) -> str:
    return floor.stores["r"].shard.key(name)


def lose_records(floor: Floor, *ids: str) -> None:
    """Take away the bodies, as an expiry of their own would in a store that has such."""
    client = floor.stores["r"]._connection.client
    assert client.hdel(key(floor, "envelopes"), *ids) == len(ids)


def test_message_without_a_body_gives_back_its_place_in_the_window(
    build_floor: Callable[..., Floor],
) -> None:
    floor = build_floor(worker={"in_flight": 4, "batch": 2}, dead_letter=None)
    lost = [f"lost-{n}" for n in range(10)]
    expired = [f"over-{n}" for n in range(10)]
    floor.schedule(*lost)
    floor.schedule(*expired, expires="1500ms")
    floor.schedule(*"uvwxyz")
    lose_records(floor, *lost)
    floor.advance(2000)
    for _ in range(30):
        floor.worker.run_once()
    assert floor.arrived() == list("uvwxyz")
    assert {floor.state(name) for name in expired} == {"dead"}
    assert floor.lane.in_flight == 0


def test_route_with_a_backlog_does_not_starve_another(build_floor: Callable[..., Floor]) -> None:
    floor = build_floor(worker={"batch": 10})
    floor.schedule(*(f"r{n:03d}" for n in range(100)))
    floor.schedule(*(f"o{n:03d}" for n in range(100)), route="other")
    floor.advance(1000)
    for _ in range(4):
        floor.worker.run_once()
    order = [each.target.topic for each in floor.publisher.delivered]
    assert (order.count("t"), order.count("o")) == (40, 40)
    first_of_each_turn = order[::20]
    assert (first_of_each_turn.count("t"), first_of_each_turn.count("o")) == (2, 2)


def test_route_with_a_newer_record_is_unready_and_the_others_flow(floor: Floor) -> None:
    floor.schedule("a")
    floor.schedule("x", route="other")
    client = floor.stores["r"]._connection.client
    record = client.hget(key(floor, "envelopes"), "a")
    client.hset(key(floor, "envelopes"), "a", bytes([NEWEST_LAYOUT + 1]) + record[1:])
    floor.turn(1000)
    floor.turn(60_000)
    assert floor.flight("a").failures == 0
    assert readiness_faults(floor.worker) == ["route r: its records need a newer duebridge"]
    assert (floor.state("a"), floor.arrived("o")) == ("ready", ["x"])


class Interrupted(float):
    """An instant; whoever computes with it is interrupted by `meanwhile`."""

    meanwhile: Callable[[], None]

    def __sub__(self, other: float) -> float:
        self.meanwhile()
        return float(self) - other


def test_store_clock_is_never_ahead_while_a_poll_replaces_it(
    floor: Floor, monkeypatch: pytest.MonkeyPatch
) -> None:
    view = floor.views["r"]
    view.refresh()
    floor.advance(900)
    newer = view.store.next()

    def monotonic() -> float:
        instant = Interrupted(floor.monotonic())
        instant.meanwhile = lambda: view.update(newer)
        return instant

    monkeypatch.setattr(view, "_monotonic", monotonic)
    assert view.now_ms() == floor.now_ms()
    assert view.poll is newer


SETTLING = {"ack", "set_aside", "retry"}


@pytest.mark.parametrize("last", ["next", "promote", "claim", "probe"])
def test_stop_between_two_calls_of_a_turn_makes_no_further_one(
    build_floor: Callable[..., Floor], monkeypatch: pytest.MonkeyPatch, last: str
) -> None:
    """Each may take seconds, and the process waits for the turn no longer than for its drain."""
    monkeypatch.setattr("duebridge.worker.claims.PROBE_ROWS", 1)
    floor = build_floor(allow_targets=[{"broker": "memory", "topic": "*"}])
    floor.publisher.script(lambda of: None if of.target.topic == "t" else MISSING)
    for topic in ("first", "second"):
        floor.schedule(*(f"{topic}{n}" for n in range(20)), target=Target("memory", topic=topic))
        floor.turn(1000)
    first, _ = floor.lane.targets.held()
    first.aside.clear()  # so that the search for the second passes all of the first
    floor.schedule(*(f"due{n}" for n in range(500)), delay="1ms")
    called: list[str] = []
    plain = Connection._run_once

    def run_once(self, script, *given):
        called.append(script.name)
        if script.name == last:
            floor.worker.stop(0)
        return plain(self, script, *given)

    monkeypatch.setattr(Connection, "_run_once", run_once)
    floor.advance(1000)
    if last == "claim":  # a full one, which another would follow
        floor.stores["r"].promote(500)
    for _ in range(10):
        floor.worker.run_once()
    after = called[called.index(last) + 1 :]
    assert set(after) <= SETTLING


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Path]:
    yield tmp_path
    stop_embedded(tmp_path)


@pytest.fixture
def works(home: Path) -> Iterator[Works]:
    with started(Works(f"embedded:{home}", {"r": "a/t"})) as works:
        yield works


def schedule(works: Works, id: str, delay: str) -> None:
    store = DelayStore(works.connection, Shard(works.namespace, "r", 0), repeat_for_s=WITHIN_S)
    store.schedule([Envelope.new(b"", id=id, delay=delay)], max_delay_ms=10**9)


def wait_listening(works: Works) -> None:
    channel = Shard(works.namespace, "r", 0).wake
    count = works.connection.client.pubsub_numsub
    wait_until(lambda: count(channel)[0][1], "the worker to listen")


def test_message_that_is_due_earlier_wakes_a_sleeping_worker_at_once(
    works: Works, monkeypatch: pytest.MonkeyPatch
) -> None:
    schedule(works, "late", "1h")
    wait_listening(works)
    monkeypatch.setattr("duebridge.worker.shard.POLL_EVERY_S", 3600.0)
    for count, name in enumerate(("first", "early"), 1):
        schedule(works, name, "1ms")
        works.await_arrivals(count)
    assert [name for name, _ in works.arrived()] == ["first", "early"]


def test_due_messages_flow_on_after_the_store_was_restarted(home: Path, works: Works) -> None:
    def hears() -> bool:
        return all(view.is_heard for view in works.runner.views())

    schedule(works, "before", "1ms")
    works.await_arrivals(1)
    for count in (2, 3):
        wait_listening(works)
        assert stop_embedded(home)
        wait_until(lambda: not hears(), "the worker to miss the store")
        open_connection(f"embedded:{home}").close()
        schedule(works, f"after-{count}", "1ms")
        works.await_arrivals(count)


# How a worker starts: it needs neither room in the store nor luck.


def test_worker_starts_on_a_full_store_and_empties_it(own_redis: RedisNode) -> None:
    works = Works(own_redis.url, {"r": "a/t"})
    works.schedule("due")
    works.producer.schedule("r", b"x", delay="1h", id="moved")
    works.connection.client.config_set("maxmemory", 1)
    assert works.producer.reschedule("r", "moved", delay="1ms") == "rescheduled"
    works.runner = Runner(works.config, works.connection, works.publishers)
    with started(works):
        works.await_arrivals(2)


def test_worker_starts_though_its_first_connections_are_dropped(own_redis: RedisNode) -> None:
    works = Works(own_redis.url, {"r": "a/t"})
    works.schedule("a")
    with proxied(own_redis.port) as proxy:
        proxy.refuse(3)
        connection = open_connection(f"redis://127.0.0.1:{proxy.port}")
        works.runner = Runner(works.config, connection, works.publishers)
        assert proxy.refused == 3
        with started(works):
            works.await_arrivals(1)
        connection.close()
