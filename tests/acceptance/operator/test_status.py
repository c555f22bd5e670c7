"""What a worker says of itself: held targets in the store and in its metrics."""

import secrets
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any

import msgspec
import pytest
import structlog

from duebridge.admin.operator import Operator
from duebridge.envelope import Target
from duebridge.ports.publisher import CONFIRMED, Delivery, Outcome, Verdict
from duebridge.store.server.connection import Connection, open_connection
from duebridge.store.workers import (
    HeldTarget,
    IntakeRecord,
    LaneRecord,
    WorkerRecord,
    Workers,
)
from duebridge.worker.reporting.status import StatusWriter
from duebridge.worker.worker import Worker
from tests.acceptance.site import running
from tests.support.command import Command, wait_until
from tests.support.floor import START_MS, Floor
from tests.support.metrics_exposed import registry_of
from tests.support.servers import free_port

MISSING = Outcome(Verdict.TARGET_FAILED, error_class="UnknownTopic", error_message="no topic t")
REFUSED = Outcome(Verdict.REJECTED, error_class="TooLarge", error_message="x")


def fail_topic(floor: Floor, topic: str | None) -> None:
    """Let the deliveries to one topic fail."""

    def script(delivery: Delivery) -> Outcome | None:
        return MISSING if delivery.target.topic == topic else CONFIRMED

    floor.publisher.script(script)


@pytest.fixture
def workers(connection: Connection, floor: Floor) -> Workers:
    return Workers(connection, floor.stores["r"].shard.namespace)


@pytest.fixture
def writer(floor: Floor, workers: Workers) -> StatusWriter:
    return StatusWriter(floor.worker, workers, floor.monotonic)


def only(workers: Workers) -> WorkerRecord:
    (record,) = workers.read()
    return record


SHARD = {"route": "r", "shard": "0"}


def held_target(topic: str, role: str) -> dict[str, str]:
    return {"broker": "memory", "target": f"memory:{topic}", "role": role}


def test_status_before_the_first_poll_is_not_written(
    writer: StatusWriter, workers: Workers
) -> None:
    assert not writer.run_once()
    assert workers.read() == []


def test_status_names_lanes_routes_and_the_time_of_the_store(
    floor: Floor, writer: StatusWriter, workers: Workers
) -> None:
    floor.turn()
    assert writer.run_once()
    floor.turn(7000)
    writer.run_once()
    record = only(workers)
    assert (record.id, record.host) == (writer.id, writer.host)
    assert (record.started_at_ms, record.at_ms) == (START_MS, START_MS + 7000)
    assert record.routes == ("r", "other")
    assert record.lanes == (LaneRecord("memory", True, "", 500, 0),)
    assert record.held == ()


def test_status_of_a_stopped_lane_has_its_error(
    floor: Floor, writer: StatusWriter, workers: Workers
) -> None:
    floor.publisher.is_available = False
    floor.turn()
    writer.run_once()
    (lane,) = only(workers).lanes
    assert (lane.is_open, lane.error) == (False, "the memory broker is not available")


def test_held_target_has_its_error_since_when_and_its_routes(
    floor: Floor, writer: StatusWriter, workers: Workers
) -> None:
    found = registry_of(floor).get_sample_value
    fail_topic(floor, "t")
    floor.schedule("a", delay="1s")
    floor.turn(1000)
    floor.turn(2000)
    writer.run_once()
    (held,) = only(workers).held
    error, routes = "UnknownTopic: no topic t", ("r",)
    assert held == HeldTarget(
        "memory", "memory:t", error, START_MS + 1000, True, 0, routes, (), routes, held.tag
    )
    floor.advance(63_000)
    assert found("duebridge_target_held", held_target("t", "route")) == 1
    assert found("duebridge_target_held_seconds", held_target("t", "route")) == 65
    assert found("duebridge_held", SHARD) == 1
    assert found("duebridge_held", {"route": "other", "shard": "0"}) == 0
    fail_topic(floor, None)
    floor.turn(2000)
    writer.run_once()
    assert only(workers).held == ()


def test_held_dead_letter_target_names_whose_letters_wait(
    floor: Floor, writer: StatusWriter, workers: Workers
) -> None:
    found = registry_of(floor).get_sample_value
    floor.publisher.script(lambda of: MISSING if of.target.topic == "dlt" else REFUSED)
    floor.schedule("a", delay="1s")
    floor.turn(1000)
    floor.turn(1000)
    writer.run_once()
    (held,) = only(workers).held
    assert (held.target, held.routes, held.letters_of) == ("memory:dlt", (), ("r",))
    assert found("duebridge_target_held", held_target("dlt", "dead_letter")) == 1


def test_status_has_the_intakes_of_the_process_and_an_older_reader_ignores_them(
    floor: Floor, workers: Workers
) -> None:
    intakes = (IntakeRecord("retries", is_up=False, error="403", lag=7, waiting_ms=9),)
    writer = StatusWriter(floor.worker, workers, floor.monotonic, lambda: intakes)
    floor.turn()
    writer.run_once()
    assert only(workers).intakes == intakes
    without = msgspec.json.decode(msgspec.json.encode(only(workers)))
    without["added_later"] = without.pop("intakes")
    assert msgspec.convert(without, WorkerRecord).intakes == ()


def test_status_of_a_process_without_lanes_is_written_at_the_stores_time(
    connection: Connection, workers: Workers
) -> None:
    intake = IntakeRecord("retries", is_up=True)
    writer = StatusWriter(Worker({}, []), workers, intakes=lambda: (intake,))
    before_ms = workers.now_ms()
    assert writer.run_once()
    record = only(workers)
    assert before_ms <= record.at_ms <= workers.now_ms()
    assert (record.intakes, record.routes) == ((intake,), ())


def test_metrics_of_a_stopped_lane_hold_no_route_until_its_broker_answers(floor: Floor) -> None:
    found = registry_of(floor).get_sample_value
    fail_topic(floor, "t")
    floor.schedule("a", delay="1s")
    floor.turn(1000)
    floor.publisher.is_available = False
    floor.turn(1000)
    assert found("duebridge_lane_stopped", {"broker": "memory"}) == 1
    assert found("duebridge_held", SHARD) == 0
    floor.publisher.is_available = True
    floor.turn(1000)
    assert found("duebridge_held", SHARD) == 1


def test_what_waits_for_each_own_target_that_is_held_is_counted_apart_and_its_route_is_well(
    build_floor: Callable[..., Floor], connection: Connection
) -> None:
    floor = build_floor(exports_gauges=True, allow_targets=[{"broker": "memory", "topic": "*"}])
    found = registry_of(floor).get_sample_value
    floor.publisher.script(lambda of: MISSING if "gone" in str(of.target.topic) else CONFIRMED)
    for count, topic in ((400, "gone-a"), (2, "gone-b")):
        ids = [f"{topic}{n}" for n in range(count)]
        floor.schedule(*ids, target=Target("memory", topic=topic))
    floor.schedule("later", delay="1h")
    for _ in range(12):
        floor.turn(1000)
    namespace = floor.stores["r"].shard.namespace
    StatusWriter(floor.worker, Workers(connection, namespace), floor.monotonic).run_once()
    block = floor.config.store.model_copy(update={"namespace": namespace})
    operator = Operator(floor.config.model_copy(update={"store": block}), connection)
    (stats,) = operator.stats(["r"])
    waits = {"gone-a": 400, "gone-b": 2}
    assert {each.target: each.waiting for each in stats.held} == {
        f"memory:{topic}": count for topic, count in waits.items()
    }
    for topic, count in waits.items():
        assert found("duebridge_target_held", held_target(topic, "own")) == 1
        assert found("duebridge_target_aside", held_target(topic, "own")) == count
    assert found("duebridge_held", SHARD) == 0
    floor.publisher.script(lambda _: CONFIRMED)
    for _ in range(6):
        floor.turn(1000)
    assert all(not view.aside.by_tag for view in floor.worker.views)


def test_metrics_count_the_letters_that_their_target_rejects(
    build_floor: Callable[..., Floor],
) -> None:
    floor = build_floor(exports_gauges=True)
    found = registry_of(floor).get_sample_value
    floor.publisher.script(lambda of: CONFIRMED if of.id == "well" else REFUSED)
    floor.schedule("a", "b", "well")
    for _ in range(8):
        floor.turn(1000)
    assert found("duebridge_letters_rejected", SHARD) == 2


@pytest.fixture
def away() -> Iterator[Connection]:
    with closing(open_connection(f"redis://127.0.0.1:{free_port()}/0", 0.2)) as connection:
        yield connection


def test_status_while_the_store_is_away_is_silent(floor: Floor, away: Connection) -> None:
    floor.turn()
    with structlog.testing.capture_logs() as logs:
        assert StatusWriter(floor.worker, Workers(away, "n")).run_once()
    assert logs == []


def test_status_that_the_user_may_not_write_is_said_once(
    floor: Floor, writer: StatusWriter, connection: Connection
) -> None:
    acl: Callable[..., Any] = connection.client.acl_setuser
    connection.client.ping()
    floor.turn()
    with closing(open_connection(_as_reader(connection, acl))) as reader:
        poor = StatusWriter(floor.worker, Workers(reader, "n"), floor.monotonic)
        with structlog.testing.capture_logs() as logs:
            poor.run_once()
            poor.run_once()
    (line,) = logs
    assert line["event"] == "status_not_written"
    assert "no permissions" in line["error"].lower()


def _as_reader(connection: Connection, acl: Callable[..., Any]) -> str:
    """Return the URL of the same server for a user who may only read."""
    acl("reader", enabled=True, nopass=True, keys=["*"], commands=["+get", "+client"])
    path = connection.client.connection_pool.connection_kwargs["path"]
    return f"unix://reader:x@{path}"


UNROUTABLE = """\
version: 1
store: {{url: "{store}"}}
brokers: {{rabbit: {{type: rabbitmq, url: "{rabbit}"}}}}
routes:
  r: {{target: {{broker: rabbit, exchange: "", routing_key: "{queue}"}}}}
"""


def test_unroutable_target_is_named_by_stats_doctor_and_events_until_the_worker_drains(
    duebridge: Command, rabbitmq_url: str
) -> None:
    queue = f"nowhere-{secrets.token_hex(4)}"
    config = UNROUTABLE.format(store=duebridge.url, rabbit=rabbitmq_url, queue=queue)
    duebridge.file.write_text(config)

    def held() -> Any:
        (route,) = duebridge("stats", "--output", "json").json()["routes"]
        return route.get("held")

    with running(duebridge) as worker:
        duebridge("send", "r", "x", "--delay", "0s", "--id", "a")
        wait_until(held, "the target to be held")
        ((target,), text) = held(), duebridge("doctor").out
        assert (target["target"], target["workers"]) == (f"rabbit:/{queue}", 1)
        assert "NO_ROUTE" in target["error"]
        assert f"the target rabbit:/{queue} fails: {target['error']}" in text
        events = duebridge("events", "--output", "json").json_lines()
        retried = next(each for each in events if each["kind"] == "retried")
        assert retried["error_class"]
        assert retried["next_at_ms"] > retried["at_ms"]
        assert worker.end() == 0
    assert held() is None
