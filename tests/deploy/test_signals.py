"""Alerts and dashboard: valid PromQL on exposed metrics; an alert fires when it should."""

import json
import re
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.deploy.chart import FOLDER
from tests.deploy.conftest import Promtool
from tests.support.checkout import ROOT
from tests.support.metrics_exposed import exposed

RULES = FOLDER / "files" / "alerts.yaml"
HISTORIES = sorted((ROOT / "tests" / "deploy" / "alerts").glob("*.yaml"))
ALERTS = [rule for group in yaml.safe_load(RULES.read_text())["groups"] for rule in group["rules"]]
PANELS = json.loads((FOLDER / "files" / "dashboard.json").read_text())["panels"]
# Grafana replaces these before it asks Prometheus.
VARIABLES = {"$__rate_interval": "1m", "$namespace": ".*", "$release": ".*", "$route": ".*"}
QUERIES = [target["expr"] for panel in PANELS for target in panel.get("targets", ())]


@pytest.fixture(scope="module")
def families() -> dict[str, str]:
    return exposed()


@pytest.mark.parametrize("query", [*QUERIES, *(rule["expr"] for rule in ALERTS)])
def test_query_names_only_exposed_metrics(query: str, families: dict[str, str]) -> None:
    words = re.findall(r"duebridge_\w+", query)
    named = {re.sub("_(bucket|count|sum)$", "", each) for each in words}
    assert named
    assert named <= families.keys()


def test_queries_of_the_dashboard_are_valid(promtool: Promtool, tmp_path: Path) -> None:
    rules = []
    for number, query in enumerate(QUERIES):
        for name, value in VARIABLES.items():
            query = query.replace(name, value)
        rules.append({"record": f"query:{number}", "expr": query})
    file = tmp_path / "queries.yaml"
    file.write_text(json.dumps({"groups": [{"name": "queries", "rules": rules}]}))
    assert f"{len(QUERIES)} rules found" in promtool("check", "rules", file)


@pytest.mark.parametrize("rule", ALERTS, ids=lambda rule: rule["alert"])
def test_alert_tells_releases_of_one_namespace_apart(rule: dict[str, Any]) -> None:
    grouped = re.findall(r"\b(?:by|on) \(([^)]*)\)", rule["expr"])
    assert grouped
    assert all(each.startswith("namespace, release") for each in grouped)


@pytest.mark.parametrize("query", QUERIES)
def test_query_of_the_dashboard_is_of_the_chosen_releases(query: str) -> None:
    chosen = re.findall(r'duebridge_\w+\{namespace=~"\$namespace", release=~"\$release"', query)
    assert len(chosen) == len(re.findall(r"duebridge_\w+", query))


@pytest.mark.parametrize("history", HISTORIES, ids=lambda path: path.stem)
def test_alerts_of_a_history_are_what_it_expects(history: Path, promtool: Promtool) -> None:
    promtool("test", "rules", history)


@cache
def histories() -> list[list[dict[str, Any]]]:
    """Return the looks at the alerts in each history."""
    files = [yaml.safe_load(path.read_text())["tests"] for path in HISTORIES]
    return [history["alert_rule_test"] for file in files for history in file]


@pytest.mark.parametrize("rule", ALERTS, ids=lambda rule: rule["alert"])
def test_alert_has_a_runbook_and_is_tried_before_it_fires_while_it_does_and_after(
    rule: dict[str, Any],
) -> None:
    """In the order of a history: quiet, firing, quiet."""
    tried = []
    for tests in histories():
        mine = [each for each in tests if each["alertname"] == rule["alert"]]
        tried.append("".join("!" if each["exp_alerts"] else "." for each in mine))
    assert any(re.fullmatch(r"\.+!+\.+", each) for each in tried), tried
    assert rule["labels"]["severity"] in ("page", "warning")
    assert (ROOT / rule["annotations"]["runbook_url"]).is_file()
