"""What the figures of a route mean, at the bounds."""

from typing import Any

import pytest

from bridge.config import Config
from bridge.doctor import route_findings
from bridge.findings import Finding, Severity
from bridge.operator import RouteStats

MILLION = 1_000_000
CONFIG = Config.model_validate(
    {
        "version": 1,
        "brokers": {"here": {"type": "memory"}},
        "routes": {
            "r": {
                "target": {"broker": "here", "topic": "t"},
                "dead_letter": {"broker": "here", "topic": "d"},
            }
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
        (0, {"pending": 1, "oldest_due_age_ms": 5_001}, "failure", "due for 5001ms, and no worker"),
        (1, {"pending": 1, "oldest_due_age_ms": 60_001}, "warning", "due for 60001ms"),
        (None, {"pending": 1, "oldest_due_age_ms": 60_001}, "warning", "due for 60001ms"),
        (1, {"held_since_ms": 1}, "failure", "it is held"),
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
