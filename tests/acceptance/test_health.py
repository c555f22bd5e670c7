"""Probes and metrics over real HTTP."""

import urllib.error
import urllib.request
from collections.abc import Iterator

import pytest
from prometheus_client import REGISTRY
from prometheus_client.registry import CollectorRegistry

from bridge import metrics
from bridge.health import HealthServer
from tests.acceptance.floor import Floor


@pytest.fixture
def server(floor: Floor) -> Iterator[HealthServer]:
    server = HealthServer([floor.worker], port=0, host="127.0.0.1")
    server.start()
    yield server
    server.close()


def fetch(server: HealthServer, path: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{server.port}{path}", timeout=10) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


def test_livez_while_the_loop_turns_is_ok(floor: Floor, server: HealthServer) -> None:
    floor.turn()
    assert fetch(server, "/livez") == (200, "ok\n")


def test_livez_when_the_loop_stands_still_fails(floor: Floor, server: HealthServer) -> None:
    floor.turn()
    floor.advance(31_000)
    status, body = fetch(server, "/livez")
    assert status == 503
    assert "its loop stands still" in body


def test_readyz_before_the_store_answered_fails(floor: Floor, server: HealthServer) -> None:
    status, body = fetch(server, "/readyz")
    assert status == 503
    assert "route r: the store does not answer" in body


def test_readyz_follows_the_lane(floor: Floor, server: HealthServer) -> None:
    floor.turn()
    assert fetch(server, "/readyz") == (200, "ok\n")
    floor.publisher.is_available = False
    floor.schedule("a", delay="0ms")
    floor.turn(1000)
    assert fetch(server, "/readyz") == (503, "lane memory: stopped\n")
    floor.publisher.is_available = True
    floor.turn(2000)
    assert fetch(server, "/readyz") == (200, "ok\n")


def test_unknown_path_says_what_there_is(server: HealthServer) -> None:
    assert fetch(server, "/") == (404, "expected /livez, /readyz or /metrics\n")


def test_metrics_count_what_became_of_envelopes(floor: Floor, server: HealthServer) -> None:
    before = REGISTRY.get_sample_value("duebridge_delivered_total", {"route": "r"}) or 0
    floor.schedule("a", "b")
    floor.turn(1000)
    _, text = fetch(server, "/metrics")
    assert f'duebridge_delivered_total{{route="r"}} {before + 2}' in text
    assert "duebridge_claim_size_bucket" in text


def test_gauges_come_from_the_latest_poll(floor: Floor) -> None:
    registry = CollectorRegistry()
    metrics.register(lambda: floor.worker.stations, [floor.lane], registry)
    floor.schedule("a", delay="1h")
    floor.turn()
    labels = {"route": "r", "shard": "0", "state": "pending"}
    assert registry.get_sample_value("duebridge_envelopes", labels) == 1
    assert registry.get_sample_value("duebridge_lane_stopped", {"broker": "memory"}) == 0


def test_lateness_of_a_batch_fills_the_right_buckets() -> None:
    registry = CollectorRegistry()
    lateness = metrics.Lateness()
    registry.register(lateness)
    lateness.observe("r", [0.001, 0.005, 0.3, 9999.0])
    name = "duebridge_lateness_seconds_bucket"
    counts = [
        registry.get_sample_value(name, {"route": "r", "le": le})
        for le in ("0.005", "0.25", "0.5", "+Inf")
    ]
    assert counts == [2, 2, 3, 4]
