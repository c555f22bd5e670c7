"""What the figures of a route mean, at the bounds."""

from typing import Any

import pytest

from duebridge.admin.doctor import route_findings
from duebridge.admin.operator import RouteStats
from duebridge.config.models import Config
from duebridge.ports.checks import Finding, Severity

MILLION = 1_000_000
CONFIG = Config.model_validate(
    {
        "version": 1,
        "brokers": {"here": {"type": "memory"}},
        "routes": {
            "far": {
                "target": {"broker": "here", "topic": "far"},
                "cold_tier": {"path": "/cold", "horizon": "7d"},
            },
            "r": {
                "target": {"broker": "here", "topic": "t"},
                "dead_letter": {"broker": "here", "topic": "d"},
            },
        },
    }
)
IDLE = RouteStats("r", 0, 0, 0, 0, 0, 0, 0, 2)


def found_of(listeners: int | None, **changed: Any) -> list[Finding]:
    given = {name: getattr(IDLE, name) for name in IDLE.__struct_fields__}
    return route_findings(CONFIG, RouteStats(**{**given, **changed}), listeners)


@pytest.mark.parametrize(
    ("listeners", "changed"),
    [
        (0, {}),
        (1, {"pending": 2 * MILLION}),
        (1, {"pending": 1, "oldest_due_age_ms": 60_000}),
        (0, {"configured": False}),
        (1, {"dead": 5}),  # they wait for the dead-letter target
        (None, {"pending": 1, "oldest_due_age_ms": 60_000}),
    ],
)
def test_findings_of_a_route_that_is_well_are_ok(
    listeners: int | None, changed: dict[str, int]
) -> None:
    (finding,) = found_of(listeners, **changed)
    assert finding.severity is Severity.OK


@pytest.mark.parametrize(
    ("listeners", "changed", "severity", "found"),
    [
        (1, {"pending": 2 * MILLION + 1}, "warning", "2000001 are pending in 2 shards"),
        (0, {"pending": 1}, "warning", "envelopes wait, and no worker listens"),
        (0, {"pending": 1, "oldest_due_age_ms": 5_000}, "warning", "no worker listens"),
        (0, {"pending": 1, "oldest_due_age_ms": 5_001}, "failure", "due for 5s, and no worker"),
        (1, {"pending": 1, "oldest_due_age_ms": 60_001}, "warning", "due for 1m"),
        (None, {"pending": 1, "oldest_due_age_ms": 60_001}, "warning", "due for 1m"),
        (1, {"held_since_ms": 1, "retry": 1}, "failure", "it is held"),
        (1, {"held_since_ms": 1}, "warning", "nothing waits to try its target"),
        (1, {"configured": False, "retry": 1}, "failure", "not in the configuration"),
    ],
)
def test_findings_of_a_route_beyond_a_bound_are_one(
    listeners: int | None, changed: dict[str, Any], severity: str, found: str
) -> None:
    (finding,) = found_of(listeners, **changed)
    assert finding.severity == severity
    assert found in finding.found
    assert finding.remedy


def test_findings_of_an_absent_route_that_may_be_absent_only_warn() -> None:
    config = CONFIG.model_copy(update={"allow_absent": ("gone",)})
    gone = RouteStats("gone", 3, 0, 0, 0, 0, 0, 0, 1, configured=False)
    (finding,) = route_findings(config, gone, 1)
    assert finding.severity is Severity.WARNING
    assert finding.found.endswith("(envelopes: 3), as allow_absent says")


HALF_MS = 84 * 3_600_000


@pytest.mark.parametrize("left_ms", [None, HALF_MS, 2 * HALF_MS])
def test_findings_of_a_cold_tier_that_is_hydrated_in_time_are_ok(left_ms: int | None) -> None:
    far = RouteStats("far", 0, 0, 0, 0, 0, 0, 0, 1, cold_left_ms=left_ms)
    assert [each.severity for each in route_findings(CONFIG, far, 0)] == [Severity.OK]


@pytest.mark.parametrize(
    ("route", "left_ms", "found"),
    [
        ("far", HALF_MS - 1, "what is due after 302399999ms may be cold: a run of hydrate is"),
        ("far", 0, "what is due since 0ms may be cold, and late"),
        ("far", -60_000, "what is due since 1m may be cold, and late"),
        ("r", 2 * HALF_MS, "it has no cold_tier, and some of its envelopes may be cold"),
    ],
)
def test_findings_of_a_cold_tier_that_misses_a_hydrate_fail_before_a_message_is_late(
    route: str, left_ms: int, found: str
) -> None:
    stats = RouteStats(route, 0, 0, 0, 0, 0, 0, 0, 1, cold_left_ms=left_ms)
    (finding,) = route_findings(CONFIG, stats, 0)
    assert finding.severity is Severity.FAILURE
    assert finding.found.startswith(found)
    assert f"duebridge spark hydrate {route}" in finding.remedy
