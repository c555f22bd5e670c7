"""When `make bench-check` fails, and what it compares."""

import json
from typing import Any

from tests.bench import check


def row(what: str, number: int, worker_us: float, store_us: float, calls: float) -> dict[str, Any]:
    figures = {"worker_cpu_us": worker_us, "store_cpu_us": store_us, "store_calls": calls}
    return {"section": "bridge", "broker": "kafka", "what": what, "round": number, **figures}


ROWS = [
    row("client alone", 1, 25.0, 0.0, 0.0),
    row("schedule", 1, 8.0, 7.0, 0.002),
    row("bridge", 1, 30.0, 9.0, 0.005),
    row("client alone", 2, 20.0, 0.0, 0.0),
    row("schedule", 2, 9.0, 8.0, 0.002),
    row("bridge", 2, 60.0, 10.0, 0.004),
    row("bridge", 0, 1.0, 1.0, 1.0),
]


def test_figures_are_the_least_of_their_rounds_and_cpu_a_multiple_of_the_clients() -> None:
    assert check.figures_of(ROWS) == {
        "kafka: bridge CPU / client alone": 1.5,
        "kafka: schedule CPU / client alone": 0.4,
        "kafka: store CPU / client alone": 0.8,
        "kafka: store calls a message": 0.006,
    }


def test_figure_within_a_fifth_of_its_own_passes() -> None:
    assert check.faults_of({"a": 1.19, "b": 0.5}, {"a": 1.0, "b": 1.0}) == []


def test_figure_beyond_a_fifth_is_named_with_both_numbers() -> None:
    faults = check.faults_of({"a": 1.3, "b": 1.0}, {"a": 1.0, "b": 1.0})
    assert faults == ["a: 1.3000, 30% above the committed 1.0"]


def test_figure_that_is_not_committed_fails() -> None:
    assert len(check.faults_of({"new": 1.0}, {})) == 1


def test_committed_baseline_has_the_figures_of_both_brokers() -> None:
    names = set(json.loads(check.BASELINE.read_text()))
    assert {name.partition(":")[0] for name in names} == {"kafka", "rabbitmq"}
    assert len(names) == 8
