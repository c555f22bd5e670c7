"""Probes and metrics over real HTTP."""

import json
import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from functools import partial
from itertools import pairwise
from threading import Event, Thread
from threading import enumerate as threads

import pytest
from prometheus_client import REGISTRY
from prometheus_client.registry import CollectorRegistry

from duebridge.errors import StoreUnavailable
from duebridge.store.server.connection import Connection
from duebridge.store.workers import IntakeRecord
from duebridge.telemetry import metrics
from duebridge.worker.reporting.missing import MissingRoutes
from duebridge.worker.reporting.probes import HealthServer, oldest_due_age_ms
from duebridge.worker.reporting.store_monitor import StoreSnapshot
from tests.acceptance.site import fetch, memory_config
from tests.support.floor import Floor
from tests.support.metrics_exposed import registry_of
from tests.support.servers import loopbacks

RESET = b"\1\0\0\0\0\0\0\0"  # linger of 0 s: a client that is killed
SHARD = {"route": "r", "shard": "0"}
Get = Callable[..., tuple[int, str]]


@pytest.fixture
def floor(build_floor: Callable[..., Floor]) -> Floor:
    return build_floor(exports_gauges=True)


@pytest.fixture
def port(floor: Floor) -> Iterator[int]:
    """The port of the floor's server."""
    server = HealthServer(floor.worker, port=0, host="127.0.0.1")
    server.start()
    yield server.port
    server.close()


@pytest.fixture
def get(port: int) -> Get:
    """Fetch a path of the floor's server."""
    return partial(fetch, port)


@pytest.mark.parametrize("address", loopbacks())
def test_probe_of_either_protocol_is_answered(floor: Floor, address: str) -> None:
    """The kubelet of an IPv6-only cluster has no other address to ask."""
    server = HealthServer(floor.worker, port=0)
    server.start()
    with closing(server), socket.create_connection((address, server.port), timeout=10) as client:
        client.sendall(b"GET /livez HTTP/1.0\r\n\r\n")
        assert client.recv(100).startswith(b"HTTP/1.0 ")


def test_livez_fails_when_the_loop_stands_still(floor: Floor, get: Get) -> None:
    floor.turn()
    assert get("/livez") == (200, "ok\n")
    floor.advance(12_001)
    status, body = get("/livez")
    assert status == 503
    assert "the worker's loop stands still" in body


def test_livez_while_no_shard_of_a_frozen_store_answers_is_ok(
    floor: Floor, get: Get, monkeypatch: pytest.MonkeyPatch
) -> None:
    def ask_in_vain() -> None:
        floor.advance(8_000)
        raise StoreUnavailable("no answer")

    for view in floor.views.values():
        monkeypatch.setattr(view, "refresh", ask_in_vain)
    floor.turn()
    assert floor.elapsed_ms == 16_000
    assert get("/livez") == (200, "ok\n")


def test_probe_that_hangs_up_writes_no_traceback(
    floor: Floor, capfd: pytest.CaptureFixture[str]
) -> None:
    asked, gone = Event(), Event()

    def missing() -> list[str]:
        asked.set()
        gone.wait(30)
        return []

    server = HealthServer(floor.worker, port=0, host="127.0.0.1", missing=missing)
    server.start()
    with socket.create_connection(("127.0.0.1", server.port), 30) as client:
        client.sendall(b"GET /readyz HTTP/1.0\r\n\r\n")
        assert asked.wait(30)
        client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
    gone.set()
    assert fetch(server.port, "/livez")[1]
    server.close()  # waits for the thread of every request
    assert "Traceback" not in capfd.readouterr().err


def test_connection_that_asks_for_nothing_is_closed_after_a_while(
    floor: Floor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(HealthServer, "timeout_s", 0.05)
    server = HealthServer(floor.worker, port=0, host="127.0.0.1")
    server.start()
    with socket.create_connection(("127.0.0.1", server.port), 10) as idle:
        assert idle.recv(1) == b""
    server.close()


def test_close_beside_an_idle_connection_and_a_request_answers_and_ends_both(
    floor: Floor, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked, going = Event(), Event()

    def missing() -> list[str]:
        asked.set()
        going.wait(30)
        return ["a fault"]

    monkeypatch.setattr(HealthServer, "timeout_s", 600.0)
    server = HealthServer(floor.worker, port=0, host="127.0.0.1", missing=missing)
    server.start()
    with ExitStack() as clients:
        idle, client = (
            clients.enter_context(socket.create_connection(("127.0.0.1", server.port), 30))
            for _ in range(2)
        )
        client.sendall(b"GET /readyz HTTP/1.0\r\n\r\n")
        assert asked.wait(30)
        closing_it = Thread(target=server.close)
        closing_it.start()
        assert idle.recv(1) == b""
        going.set()
        closing_it.join(30)
        assert client.makefile().read().endswith("a fault\n")
    assert [each.name for each in threads() if "process_request" in each.name] == []


def test_connections_beyond_the_limit_end_the_oldest_ones_and_probes_are_answered(
    floor: Floor, port: int, get: Get
) -> None:
    floor.turn()
    with ExitStack() as held:
        idle = [
            held.enter_context(socket.create_connection(("127.0.0.1", port), 5))
            for _ in range(32 + 8)
        ]
        assert get("/livez") == (200, "ok\n")
        assert [each.recv(1) for each in idle[:9]] == [b""] * 9
        idle[-1].sendall(b"GET /livez HTTP/1.0\r\n\r\n")
        assert idle[-1].recv(12) == b"HTTP/1.0 200"


def test_readyz_follows_the_store_and_the_lane(floor: Floor, get: Get) -> None:
    status, body = get("/readyz")
    assert status == 503
    assert "route r: the store does not answer" in body
    assert "broker memory: its broker was not reached yet" in body
    floor.turn()
    assert get("/readyz") == (200, "ok\n")
    floor.publisher.is_available = False
    floor.schedule("a", delay="0ms")
    floor.turn(1000)
    assert get("/readyz") == (503, "broker memory: not available\n")
    floor.publisher.is_available = True
    floor.turn(2000)
    assert get("/readyz") == (200, "ok\n")


def test_readyz_of_a_store_that_refuses_to_write_says_why(
    floor: Floor, connection: Connection, get: Get
) -> None:
    refusal = "route r: the delay store cannot write now: NOREPLICAS"
    floor.turn()
    floor.schedule("a", delay="0ms")
    connection.client.config_set("min-replicas-to-write", 1)
    try:
        for _ in range(2):  # the first asks for the gauge lease, whose refusal is nobody's concern
            floor.turn(1000)
        status, body = get("/readyz")
        assert (status, body.partition(" Not")[0]) == (503, refusal)
        assert json.loads(get("/due")[1])["error"] == body.rstrip("\n")
    finally:
        connection.client.config_set("min-replicas-to-write", 0)
    floor.turn(2000)
    assert get("/readyz") == (200, "ok\n")


def test_pages_of_a_process_with_intakes_have_what_is_down_and_what_waits(floor: Floor) -> None:
    intakes = [IntakeRecord("a", is_up=True, lag=7), IntakeRecord("b", is_up=False, error="403")]
    idle_s = {"a": 0.5, "b": 59.0}
    server = HealthServer(floor.worker, 0, "127.0.0.1", lambda: intakes, lambda: idle_s)
    server.start()
    floor.turn()
    assert fetch(server.port, "/readyz") == (503, "intake b: 403\n")
    assert fetch(server.port, "/livez") == (200, "ok\n")
    _, body = fetch(server.port, "/due")
    assert json.loads(body)["intakes"] == {"a": {"lag": 7}}
    idle_s["b"] = 61.0
    assert fetch(server.port, "/livez") == (503, "the loop of intake b stands still\n")
    server.close()


HELD = {"old": 3}
CONFIGURED = memory_config({"r": {"target": {"broker": "memory", "topic": "t"}}})


@pytest.mark.parametrize(
    ("at_start", "now", "allowed", "is_missing"),
    [
        (HELD, None, [], True),  # not sampled yet, or the store is away
        (HELD, HELD, [], True),
        (HELD, {"old": 0}, [], True),  # its cold tier may hold some
        (HELD, {}, [], False),  # delivered by others, or purged
        (HELD, HELD, ["old"], False),
        ({}, HELD, [], False),  # of a newer configuration: a running worker stays ready
    ],
)
def test_route_missing_at_the_start_is_a_fault_until_it_is_empty_or_allowed(
    at_start: dict[str, int], now: dict[str, int] | None, allowed: list[str], is_missing: bool
) -> None:
    config = CONFIGURED.model_copy(update={"allow_absent": tuple(allowed)})
    snapshot = None if now is None else StoreSnapshot(1, 2, (), now)
    missing = MissingRoutes(lambda: at_start, lambda: config, lambda: snapshot)
    assert [each.partition(":")[0] for each in missing.faults()] == ["routes.old"] * is_missing


def test_route_missing_at_the_start_is_found_once_a_store_that_did_not_tell_does() -> None:
    samples: list[StoreSnapshot | None] = [None]

    def no_answer() -> dict[str, int]:
        raise StoreUnavailable("timed out")

    missing = MissingRoutes(no_answer, lambda: CONFIGURED, lambda: samples[-1])
    assert missing.faults() == []
    samples.append(StoreSnapshot(1, 2, (), HELD))
    assert [each.partition(":")[0] for each in missing.faults()] == ["routes.old"]
    samples.append(StoreSnapshot(1, 2, (), {**HELD, "newer": 1}))
    assert [each.partition(":")[0] for each in missing.faults()] == ["routes.old"]


def test_metrics_count_what_became_of_envelopes_in_the_format_that_is_asked_for(
    floor: Floor, get: Get
) -> None:
    before = REGISTRY.get_sample_value("duebridge_delivered_total", {"route": "r"}) or 0
    registry_of(floor)  # which also leaves the second series of each counter out
    floor.schedule("a", "b")
    floor.turn(1000)
    _, text = get("/metrics")
    assert f'duebridge_delivered_total{{route="r"}} {before + 2}' in text
    assert "duebridge_claim_size_bucket" in text
    assert "_created" not in text, "no second series of when a counter began"
    assert "# EOF" not in text
    asked = "application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.5"
    assert get("/metrics", asked)[1].endswith("# EOF\n")


def test_lateness_of_a_batch_fills_the_right_buckets() -> None:
    registry = CollectorRegistry()
    lateness = metrics.LatenessHistogram()
    registry.register(lateness)
    lateness.observe("r", [0.001, 0.005, 0.3, 9999.0])
    counts = [
        registry.get_sample_value("duebridge_lateness_seconds_bucket", {"route": "r", "le": le})
        for le in ("0.005", "0.25", "0.5", "+Inf")
    ]
    assert counts == [2, 2, 3, 4]
    edges = [each for each in metrics.LATENESS_BUCKETS_S if 2.5 <= each <= 120]
    assert all(high <= 2 * low for low, high in pairwise(edges)), "seconds are told apart"


def test_due_before_the_first_look_is_unknown_and_not_nothing(get: Get) -> None:
    status, body = get("/due")
    unknown = "route other: the store does not answer; route r: the store does not answer"
    assert (status, json.loads(body)) == (503, {"error": unknown})


def due(now: int, age_s: float, within_60: int, within_300: int) -> dict[str, object]:
    within = {"60": within_60, "300": within_300}
    return {"due_now": now, "oldest_due_age_s": age_s, "due_within_s": within}


def test_due_tells_what_is_due_and_soon_will_be_as_the_gauges_do(floor: Floor, get: Get) -> None:
    found = registry_of(floor).get_sample_value
    floor.publisher.is_available = False
    floor.schedule("now", delay="1s")
    floor.turn(1000)
    floor.schedule("soon", delay="60s")
    floor.schedule("later", delay="300s", route="other")
    floor.turn(6000)
    status, body = get("/due")
    routes = {"r": due(1, 6.0, 2, 2), "other": due(0, 0.0, 0, 1)}
    assert (status, json.loads(body)) == (200, {"routes": routes, "totals": due(1, 6.0, 2, 3)})
    assert found("duebridge_due", SHARD) == 1
    assert found("duebridge_due_within", {**SHARD, "window": "60s"}) == 2
    assert found("duebridge_oldest_due_age_seconds", SHARD) == 6
    assert found("duebridge_scheduled_total", SHARD) == 2
    assert found("duebridge_journal_lag_entries", SHARD) is None
    assert found("duebridge_journal_left_entries", SHARD) is None


def test_scheduled_total_where_a_failover_loses_some_stays_and_then_rises(
    floor: Floor, connection: Connection
) -> None:
    registry, meta = registry_of(floor), floor.stores["r"].shard.key("meta")

    def scheduled() -> list[float | None]:
        for ms in (6000, 1000):  # the figures, then the lease to export them
            floor.turn(ms)
        return [registry.get_sample_value("duebridge_scheduled_total", SHARD) for _ in range(2)]

    floor.schedule("a", "b", "c", delay="1h")
    assert scheduled() == [3, 3]
    connection.client.hincrby(meta, "generation", -2)  # the promoted replica lacks them
    assert scheduled() == [3, 3]
    floor.schedule("d", delay="1h")
    assert scheduled() == [4, 4]


def test_oldest_due_age_goes_on_rising_while_the_store_is_away(floor: Floor) -> None:
    view = floor.views["r"]
    floor.schedule("a", delay="10s")
    floor.turn()
    view.mark_unreachable()
    floor.advance(25_000)
    assert view.stats is not None
    assert oldest_due_age_ms(view, view.stats) == 15_000


def test_dead_counts_also_what_a_claim_and_a_reclaim_buried(
    build_floor: Callable[..., Floor],
) -> None:
    def counts() -> list[float]:
        labels = [{"route": "r", "reason": reason} for reason in ("expired", "poison")]
        return [REGISTRY.get_sample_value("duebridge_dead_total", each) or 0 for each in labels]

    before = counts()
    floor = build_floor(poison=1, lease="30s")
    floor.schedule("late", delay="1s", expires="2s")
    floor.turn(3000)
    floor.poison("deadly", lease_ms=30_000)
    floor.worker.run_once()
    assert counts() == [before[0] + 1, before[1] + 1]
