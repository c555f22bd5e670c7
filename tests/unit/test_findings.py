"""What the doctor concludes of routes and targets, and when a store is empty."""

import time
from collections.abc import Callable, Sequence
from itertools import chain, repeat
from threading import Event
from typing import Any

import msgspec
import pytest

from duebridge.admin.checks import broker_checks as examination
from duebridge.admin.checks.broker_checks import destinations_of, examine_brokers
from duebridge.admin.checks.drain_check import DrainCheck, Leftover, count_drainable, leftovers
from duebridge.admin.checks.route_checks import CLUSTER_SHARD_PENDING, route_findings
from duebridge.admin.held import HeldStats, held_of, stopped_lanes
from duebridge.admin.route_stats import RouteStats
from duebridge.config.models import Config
from duebridge.console.pages.overview import held_rows
from duebridge.errors import ConfigError
from duebridge.ports.checks import Finding, FindingSubject, Severity, ok
from duebridge.store.server.connection import open_connection
from duebridge.store.workers import HeldTarget, LaneRecord, WorkerRecord
from duebridge_connectors.memory import Memory
from tests.support.servers import free_port

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
HELD = HeldStats("b:t", "312 NO_ROUTE", 1_800_000_000_000, 1, 1, at_fault=True)
NOTHING_HELD = HeldStats("b:t", "312 NO_ROUTE", 1_800_000_000_000, 0, 1, at_fault=True)
LETTERS_HELD = HeldStats("b:t", "312 NO_ROUTE", 1_800_000_000_000, 0, 1, dead_letter=True)


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
        (0, {"held_since_ms": 1}),  # it may be well again
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
        (0, {"pending": 1}, "warning", "envelopes wait, and no worker serves this route"),
        (0, {"retry": 1, "held_since_ms": 1}, "warning", "and no worker serves this route"),
        (0, {"pending": 1, "oldest_due_age_ms": 5_000}, "warning", "no worker serves"),
        (0, {"pending": 1, "oldest_due_age_ms": 5_001}, "failure", "due for 5s, and no worker"),
        (1, {"pending": 1, "oldest_due_age_ms": 60_001}, "warning", "due for 1m"),
        (None, {"pending": 1, "oldest_due_age_ms": 60_001}, "warning", "due for 1m"),
        (1, {"held": (HELD,), "retry": 1}, "failure", "fails: 312 NO_ROUTE (waiting: 1)"),
        (1, {"held": (HELD,)}, "failure", "since 2027-01-15T08:00:00.000Z: the target b:t fails"),
        (1, {"held": (NOTHING_HELD,), "pending": 1}, "warning", "the target b:t fails"),
        (
            1,
            {"held": (LETTERS_HELD,), "pending": 1},
            "warning",
            "the dead-letter target b:t fails: 312 NO_ROUTE",
        ),
        (1, {"suspects": 2, "ready": 2}, "warning", "suspects: 2; their leases ran out twice"),
        (1, {"configured": False, "retry": 1}, "failure", "not in the configuration"),
        (0, {"configured": False, "cold_left_ms": 0}, "failure", "some may be in its cold tier"),
    ],
)
def test_findings_of_a_route_beyond_a_bound_are_one(
    listeners: int | None, changed: dict[str, Any], severity: str, found: str
) -> None:
    (finding,) = found_of(listeners, **changed)
    assert finding.severity == severity
    assert found in finding.found
    assert finding.remedy


@pytest.mark.parametrize(
    ("reporting", "told"),
    [(0, "workers that listen: 2, and none"), (1, "workers that listen: 2, and 1")],
)
def test_findings_of_workers_that_only_listen_warn_that_one_may_be_frozen(
    reporting: int, told: str
) -> None:
    (finding,) = route_findings(CONFIG, IDLE, 2, reporting=reporting)
    assert finding.severity is Severity.WARNING
    assert finding.found == f"{told} of them reported in the last 15s: is one frozen?"


@pytest.mark.parametrize(("listeners", "reporting"), [(2, 2), (2, None), (None, 0), (1, 2)])
def test_findings_of_workers_that_report_or_cannot_be_told_apart_are_ok(
    listeners: int | None, reporting: int | None
) -> None:
    (finding,) = route_findings(CONFIG, IDLE, listeners, reporting=reporting)
    assert finding.severity is Severity.OK


def test_findings_of_a_large_shard_of_a_cluster_warn_earlier() -> None:
    given = {name: getattr(IDLE, name) for name in IDLE.__struct_fields__}
    stats = [RouteStats(**{**given, "pending": count}) for count in (200_000, 200_001)]
    found = [route_findings(CONFIG, each, 1, CLUSTER_SHARD_PENDING) for each in stats]
    assert [each.severity for (each,) in found] == [Severity.OK, Severity.WARNING]
    assert "meant for 100,000 each" in found[1][0].found


def test_held_of_a_route_merges_what_several_workers_say() -> None:
    later = HeldTarget("b", "b:t", "newer", 7, False, 0, ("r",))
    sooner = HeldTarget("b", "b:t", "older", 5, True, 0, ("r", "s"))
    letters = HeldTarget("b", "b:d", "gone", 6, True, 0, (), ("r",))
    records = [worker(held=(sooner,)), worker(held=(later, letters))]
    assert held_of(records, "r", waiting=4, dead=2) == [
        HeldStats("b:t", "newer", 5, 4, 2, at_fault=True),
        HeldStats("b:d", "gone", 6, 2, 1, at_fault=True, dead_letter=True),
    ]
    assert [each.target for each in held_of(records, "s", waiting=0, dead=0)] == ["b:t"]


def test_held_of_a_route_with_own_targets_counts_what_waits_for_each() -> None:
    own = HeldTarget("b", "b:own", "gone", 5, True, 0, ("r",), tag="TAG-OWN-")
    other = HeldTarget("b", "b:other", "gone", 6, True, 0, ("r",), tag="TAG-OTHR")
    older_worker = HeldTarget("b", "b:t", "gone", 7, True, 0, ("r",))
    records = [worker(held=(own, other, older_worker))]
    found = held_of(records, "r", waiting=9, dead=0, aside={"TAG-OWN-": 2})
    assert [(each.target, each.waiting) for each in found] == [
        ("b:own", 2), ("b:other", 0), ("b:t", 9)
    ]  # fmt: skip


def test_held_target_of_two_routes_is_one_row_with_what_waits_on_both() -> None:
    of_r, of_s = HeldStats("b:t", "gone", 7, 4, 1), HeldStats("b:t", "gone", 7, 2, 1)
    empty = dict.fromkeys(("pending", "ready", "unack", "retry", "dead"), 0)
    rest: dict[str, int] = {"oldest_due_age_ms": 0, "held_since_ms": 7, "shards": 1, **empty}
    stats = [RouteStats("r", held=(of_r,), **rest), RouteStats("s", held=(of_s,), **rest)]
    (row,) = held_rows(stats)
    assert (row.held.waiting, row.routes) == (6, ["r", "s"])


@pytest.mark.parametrize(("age_ms", "count"), [(1_999, 0), (2_000, 1)])
def test_stopped_lanes_are_those_of_workers_beyond_their_start(age_ms: int, count: int) -> None:
    lanes = (LaneRecord("open", True), LaneRecord("shut", False, "ACCESS_REFUSED"))
    found = stopped_lanes([worker(lanes=lanes, at_ms=age_ms)])
    assert [(each.broker, each.error) for each in found] == [("shut", "ACCESS_REFUSED")] * count


def worker(at_ms: int = 0, **fields: Any) -> WorkerRecord:
    return WorkerRecord("id", "host", 1, "1.0", 0, at_ms, **fields)


@pytest.mark.parametrize(
    ("pending", "left_ms", "found"),
    [(3, None, "(envelopes: 3)"), (0, 7, "(envelopes: 0; some may be in its cold tier)")],
)
def test_findings_of_an_absent_route_that_may_be_absent_only_warn(
    pending: int, left_ms: int | None, found: str
) -> None:
    config = CONFIG.model_copy(update={"allow_absent": ("gone",)})
    empty = RouteStats("gone", pending, 0, 0, 0, 0, 0, 0, 1, configured=False)
    (finding,) = route_findings(config, msgspec.structs.replace(empty, cold_left_ms=left_ms), 1)
    assert finding.severity is Severity.WARNING
    assert finding.found.endswith(f"{found}, as allow_absent says")


def test_findings_of_an_absent_route_name_a_release_that_may_share_the_namespace() -> None:
    gone = RouteStats("gone", 3, 0, 0, 0, 0, 0, 0, 1, configured=False)
    (finding,) = route_findings(CONFIG, gone, 1)
    assert finding.severity is Severity.FAILURE
    assert "another release serves it, both share store.namespace" in finding.remedy


HALF_MS = 84 * 3_600_000


@pytest.mark.parametrize("left_ms", [None, HALF_MS, 2 * HALF_MS])
def test_findings_of_a_cold_tier_that_is_hydrated_in_time_are_ok(left_ms: int | None) -> None:
    far = RouteStats("far", 0, 0, 0, 0, 0, 0, 0, 1, cold_left_ms=left_ms)
    assert [each.severity for each in route_findings(CONFIG, far, 0)] == [Severity.OK]


@pytest.mark.parametrize(
    ("route", "left_ms", "found"),
    [
        ("far", HALF_MS - 1, "envelopes due after 302399999ms may be cold: a run of hydrate is"),
        ("far", 0, "envelopes due in the last 0ms may be cold, and late"),
        ("far", -60_000, "envelopes due in the last 1m may be cold, and late"),
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


CONFIG_EXAMINATION = Config.model_validate(
    {
        "version": 1,
        "brokers": {"a": {"type": "memory"}, "b": {"type": "memory"}, "idle": {"type": "memory"}},
        "routes": {
            "r": {
                "target": {"broker": "a", "topic": "t"},
                "dead_letter": {"broker": "b", "topic": "d"},
                "allow_targets": [
                    {"broker": "a", "topic": "order-*"},
                    {"broker": "a", "topic": "orders"},
                ],
                "max_body": "2KiB",
            }
        },
    }
)


def test_destinations_are_what_routes_name_but_no_glob() -> None:
    found = destinations_of(CONFIG_EXAMINATION)
    places = {broker: [each.place for each in several] for broker, several in found.items()}
    assert places == {
        "a": ["routes.r.target", "routes.r.allow_targets.1"],
        "b": ["routes.r.dead_letter"],
    }
    assert {each.max_body_bytes for each in found["a"]} == {2048}


def examined(
    monkeypatch: pytest.MonkeyPatch,
    examine: Callable[[str], list[Finding]],
    deadline_s: float = 60.0,
) -> Sequence[Finding]:
    def call(self: Memory, place: str, *_: Any) -> list[Finding]:
        return examine(place.removeprefix("brokers."))

    monkeypatch.setattr(Memory, "examine", call)
    monkeypatch.setattr(examination, "GRACE_S", 0.0)
    return examine_brokers(CONFIG_EXAMINATION, deadline_s)


def test_examine_defect_of_one_connector_does_not_hide_another(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def examine(broker: str) -> list[Finding]:
        if broker == "a":
            raise KeyError("canary")
        return [ok(FindingSubject.BROKER, "brokers.b", "answers")]

    defect, fine = examined(monkeypatch, examine)
    assert (defect.severity, defect.place) == (Severity.FAILURE, "brokers.a")
    assert "KeyError" in defect.found
    assert "canary" not in defect.found
    assert fine.severity is Severity.OK


def test_examine_settings_that_are_refused_are_about_the_configuration(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def examine(broker: str) -> list[Finding]:
        raise ConfigError("options.linger.ms: too long")

    finding, _ = examined(monkeypatch, examine)
    assert (finding.about, finding.place) == (FindingSubject.CONFIG, "brokers.a")
    assert finding.found == "options.linger.ms: too long"


def test_examine_that_hangs_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    release = Event()

    def examine(broker: str) -> list[Finding]:
        if broker == "a":
            release.wait(60)
        return [ok(FindingSubject.BROKER, f"brokers.{broker}", "answers")]

    # The one that hangs is waited for first; on a busy machine the other may answer late.
    waits = chain([examination.left_s], repeat(lambda _: 60.0))
    monkeypatch.setattr(examination, "left_s", lambda until: next(waits)(until))
    begun = time.monotonic()
    hangs, fine = examined(monkeypatch, examine, deadline_s=0.2)
    release.set()
    assert time.monotonic() - begun < 10
    assert (hangs.about, hangs.found) == (FindingSubject.BROKER, "no answer within 0.2 s")
    assert fine.severity is Severity.OK


TARGET = {"broker": "here", "topic": "t"}


def test_rejected_dead_letters_warn_with_the_commands_that_help() -> None:
    (finding,) = found_of(1, dead=5, rejected=3)
    assert finding.severity == "warning"
    assert finding.found == "3 dead letters are kept: their target rejects them"
    assert "`duebridge dead ls r`" in finding.remedy
    assert "`duebridge dead shunt r`" in finding.remedy


LETTERS = {"broker": "here", "topic": "dlt"}
CONFIG_EMPTYING = Config.model_validate(
    {
        "version": 1,
        "brokers": {"here": {"type": "memory"}},
        "routes": {
            "keeps": {"target": TARGET},
            "shunts": {"target": TARGET, "dead_letter": LETTERS},
        },
    }
)
EMPTY = RouteStats("keeps", 0, 0, 0, 0, 0, 0, 0, 1)


def stats(**changed: Any) -> list[RouteStats]:
    given = {name: getattr(EMPTY, name) for name in EMPTY.__struct_fields__}
    return [RouteStats(**{**given, **changed})]


@pytest.mark.parametrize(
    ("changed", "to_go", "left"),
    [
        *[({state: 2}, 2, "") for state in ("pending", "ready", "unack", "retry")],
        ({"route": "shunts", "dead": 3}, 3, ""),
        (
            {"route": "shunts", "dead": 3, "rejected": 2},
            1,
            "dead, and their target rejects them: 2",
        ),
        ({"dead": 3}, 0, "dead, and no dead-letter target: 3"),
        ({"cold_left_ms": 0}, 0, "some may be in its cold tier"),
        ({"pending": 1, "dead": 1, "configured": False}, 0, "not in the configuration: 2"),
        ({"configured": False}, 0, ""),
    ],
)
def test_drain_counts_what_workers_take_out_and_names_what_they_leave(
    changed: dict[str, Any], to_go: int, left: str
) -> None:
    changed = {"route": "keeps" if changed.get("configured", True) else "absent", **changed}
    assert count_drainable(CONFIG_EMPTYING, stats(**changed)) == to_go
    found = list(leftovers(CONFIG_EMPTYING, stats(**changed)))
    assert found == ([Leftover(changed["route"], left)] if left else [])


def test_store_that_does_not_answer_is_not_empty() -> None:
    connection = open_connection(f"redis://127.0.0.1:{free_port()}/0")
    emptying = DrainCheck(connection)
    assert not emptying.is_complete(CONFIG_EMPTYING)
    assert not emptying.is_empty
    connection.close()
