"""Probes and metrics over real HTTP."""

import json
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator

import pytest
from prometheus_client import REGISTRY
from prometheus_client.registry import CollectorRegistry

from duebridge.errors import StoreUnavailable
from duebridge.telemetry import metrics
from duebridge.worker.gauges import register
from duebridge.worker.probes import HealthServer, oldest_due_age_ms
from tests.support.floor import Floor

SHARD = {"route": "r", "shard": "0"}


@pytest.fixture
def floor(build_floor: Callable[..., Floor]) -> Floor:
    return build_floor(is_watched=True)


@pytest.fixture
def server(floor: Floor) -> Iterator[HealthServer]:
    server = HealthServer([floor.worker], port=0, host="127.0.0.1")
    server.start()
    yield server
    server.close()


def fetch(server: HealthServer, path: str, accept: str = "*/*") -> tuple[int, str]:
    url = f"http://127.0.0.1:{server.port}{path}"
    request = urllib.request.Request(url, headers={"Accept": accept})
    try:
        with urllib.request.urlopen(request, timeout=10) as answer:  # noqa: S310 - http, always
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


def test_livez_while_the_loop_turns_is_ok(floor: Floor, server: HealthServer) -> None:
    floor.turn()
    assert fetch(server, "/livez") == (200, "ok\n")


def test_livez_when_the_loop_stands_still_fails(floor: Floor, server: HealthServer) -> None:
    floor.turn()
    floor.advance(12_001)
    status, body = fetch(server, "/livez")
    assert status == 503
    assert "its loop stands still" in body


def test_livez_while_no_shard_of_a_frozen_store_answers_is_ok(
    floor: Floor, server: HealthServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    def ask_in_vain() -> None:
        floor.advance(8_000)
        raise StoreUnavailable("no answer")

    for view in floor.views.values():
        monkeypatch.setattr(view, "refresh", ask_in_vain)
    floor.turn()
    assert floor.elapsed_ms == 16_000
    assert fetch(server, "/livez") == (200, "ok\n")


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


def test_metrics_count_what_became_of_envelopes(floor: Floor, server: HealthServer) -> None:
    before = REGISTRY.get_sample_value("duebridge_delivered_total", {"route": "r"}) or 0
    floor.schedule("a", "b")
    floor.turn(1000)
    _, text = fetch(server, "/metrics")
    assert f'duebridge_delivered_total{{route="r"}} {before + 2}' in text
    assert "duebridge_claim_size_bucket" in text


def test_lateness_of_a_batch_fills_the_right_buckets() -> None:
    registry = CollectorRegistry()
    lateness = metrics.LatenessHistogram()
    registry.register(lateness)
    lateness.observe("r", [0.001, 0.005, 0.3, 9999.0])
    name = "duebridge_lateness_seconds_bucket"
    counts = [
        registry.get_sample_value(name, {"route": "r", "le": le})
        for le in ("0.005", "0.25", "0.5", "+Inf")
    ]
    assert counts == [2, 2, 3, 4]


def test_metrics_are_openmetrics_only_where_that_is_asked_for(server: HealthServer) -> None:
    asked = "application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.5"
    assert fetch(server, "/metrics", asked)[1].endswith("# EOF\n")
    assert "# EOF" not in fetch(server, "/metrics")[1]


def test_due_before_the_first_look_is_unknown_and_not_nothing(server: HealthServer) -> None:
    status, body = fetch(server, "/due")
    assert status == 503
    assert json.loads(body) == {
        "error": "route other: the store does not answer; route r: the store does not answer"
    }


def test_due_tells_what_is_due_and_soon_will_be(floor: Floor, server: HealthServer) -> None:
    floor.publisher.is_available = False
    floor.schedule("now", delay="1s")
    floor.turn(1000)
    floor.schedule("soon", delay="60s")
    floor.schedule("later", delay="300s", route="other")
    floor.turn(6000)
    status, body = fetch(server, "/due")
    assert (status, json.loads(body)) == (
        200,
        {
            "routes": {
                "r": {"due_now": 1, "oldest_due_age_s": 6.0, "due_within_s": {"60": 2, "300": 2}},
                "other": {
                    "due_now": 0,
                    "oldest_due_age_s": 0.0,
                    "due_within_s": {"60": 0, "300": 1},
                },
            },
            "totals": {"due_now": 1, "oldest_due_age_s": 6.0, "due_within_s": {"60": 2, "300": 3}},
        },
    )


def test_due_is_in_the_gauges_too(floor: Floor) -> None:
    registry = CollectorRegistry()
    register(lambda: floor.worker.views, [floor.lane], registry=registry)
    floor.publisher.is_available = False
    floor.schedule("now", "now too", delay="1s")
    floor.turn(1000)
    floor.schedule("soon", delay="60s")
    floor.turn(6000)
    found = registry.get_sample_value
    assert found("duebridge_due", SHARD) == 2
    assert found("duebridge_due_within", {**SHARD, "window": "60s"}) == 3
    assert found("duebridge_oldest_due_age_seconds", SHARD) == 6
    assert found("duebridge_scheduled_total", SHARD) == 3
    assert found("duebridge_journal_lag_entries", SHARD) is None
    assert found("duebridge_journal_left_entries", SHARD) is None


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
    def count(reason: str) -> float:
        labels = {"route": "r", "reason": reason}
        return REGISTRY.get_sample_value("duebridge_dead_total", labels) or 0

    before = {reason: count(reason) for reason in ("expired", "poison")}
    floor = build_floor(poison=1, lease="30s")
    floor.schedule("late", delay="1s", expires="2s")
    floor.turn(3000)
    floor.schedule("deadly", delay="0ms")
    store = floor.stores["r"]
    store.promote()
    for alone in (False, False, True):
        assert store.claim(1, 30_000, alone=alone).ids == ["deadly"]
        floor.advance(30_000)
        if not alone:
            store.reclaim()
    floor.worker.run_once()
    assert {reason: count(reason) - before[reason] for reason in before} == {
        "expired": 1,
        "poison": 1,
    }
