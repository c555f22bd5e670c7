"""Which targets are examined, and that no examiner stops or hides another."""

import time
from collections.abc import Callable, Sequence
from threading import Event
from typing import Any

import pytest

from duebridge.admin import broker_checks as examination
from duebridge.admin.broker_checks import destinations_of, examine_brokers
from duebridge.config.models import Config
from duebridge.errors import ConfigError
from duebridge.ports.checks import About, Finding, Severity, ok

CONFIG = Config.model_validate(
    {
        "version": 1,
        "brokers": {
            "a": {"type": "memory"},
            "b": {"type": "memory"},
            "idle": {"type": "memory"},
        },
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
    found = destinations_of(CONFIG)
    places = {broker: [each.place for each in several] for broker, several in found.items()}
    assert places == {
        "a": ["routes.r.target", "routes.r.allow_targets.1"],
        "b": ["routes.r.dead_letter"],
    }
    assert {each.max_body_bytes for each in found["a"]} == {2048}


def examined(
    monkeypatch: pytest.MonkeyPatch, examine: Callable[[str], list[Finding]]
) -> Sequence[Finding]:
    def call(group: str, broker: str, *_: Any) -> list[Finding]:
        return examine(broker)

    monkeypatch.setattr(examination, "call_connector", call)
    monkeypatch.setattr(examination, "GRACE_S", 0.0)
    return examine_brokers(CONFIG, deadline_s=0.2)


def test_examine_defect_of_one_connector_does_not_hide_another(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def examine(broker: str) -> list[Finding]:
        if broker == "a":
            raise KeyError("canary")
        return [ok(About.BROKER, "brokers.b", "answers")]

    defect, fine = examined(monkeypatch, examine)
    assert (defect.severity, defect.place) == (Severity.FAILURE, "brokers.a")
    assert "KeyError" in defect.found
    assert "canary" not in defect.found
    assert fine.severity is Severity.OK


def test_examine_settings_that_are_refused_are_about_the_configuration(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def examine(broker: str) -> list[Finding]:
        raise ConfigError(f"brokers.{broker}: options.linger.ms: too long")

    finding, _ = examined(monkeypatch, examine)
    assert (finding.about, finding.place) == (About.CONFIG, "brokers.a")
    assert finding.found == "options.linger.ms: too long"


def test_examine_that_hangs_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    release = Event()

    def examine(broker: str) -> list[Finding]:
        if broker == "a":
            release.wait(60)
        return [ok(About.BROKER, f"brokers.{broker}", "answers")]

    begun = time.monotonic()
    hangs, fine = examined(monkeypatch, examine)
    release.set()
    assert time.monotonic() - begun < 10
    assert (hangs.about, hangs.found) == (About.BROKER, "no answer in time")
    assert fine.severity is Severity.OK
