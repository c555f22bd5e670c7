"""The dashboard's panels, as Grafana's JSON has them, with its variables put in."""

import json
from pathlib import Path
from typing import Any, NamedTuple

DASHBOARD = Path(__file__).resolve().parents[1] / "helm" / "duebridge" / "files" / "dashboard.json"
RATE_INTERVAL = "20s"
EVERY = ".*"  # what the dashboard's variables stand for where all is chosen


class Target(NamedTuple):
    """One query of a panel."""

    query: str
    legend: str


class Panel(NamedTuple):
    """One panel; `defaults` are Grafana's words for unit, thresholds and mappings."""

    title: str
    kind: str
    place: dict[str, int]
    targets: tuple[Target, ...]
    defaults: dict[str, Any]
    overrides: list[dict[str, Any]]

    @property
    def is_logarithmic(self) -> bool:
        """Whether its scale is."""
        scale = self.defaults.get("custom", {}).get("scaleDistribution", {})
        return bool(scale.get("type") == "log")


def panels(rate_interval: str = RATE_INTERVAL) -> list[Panel]:
    """Return all of them, rows included, with every namespace and route chosen."""
    text = DASHBOARD.read_text()
    chosen = {"$__rate_interval": rate_interval, "$namespace": EVERY, "$route": EVERY}
    for name, value in chosen.items():
        text = text.replace(name, value)
    return [_panel(each) for each in json.loads(text)["panels"]]


def _panel(found: dict[str, Any]) -> Panel:
    config = found.get("fieldConfig", {})
    return Panel(
        found["title"],
        found["type"],
        found["gridPos"],
        tuple(Target(each["expr"], each["legendFormat"]) for each in found.get("targets", ())),
        config.get("defaults", {}),
        config.get("overrides", []),
    )
