"""The alerts: each fires, is quiet just before, resolves, and has a runbook."""

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.conftest import ROOT
from tests.deploy.promtool import promtool

RULES = ROOT / "deploy" / "helm" / "duebridge" / "files" / "alerts.yaml"
HISTORIES = sorted((ROOT / "tests" / "deploy" / "alerts").glob("*.yaml"))
ALERTS = [rule for group in yaml.safe_load(RULES.read_text())["groups"] for rule in group["rules"]]
PAGE = (ROOT / "docs" / "metrics.md").read_text()
RUNBOOKS = {path.name for path in (ROOT / "docs" / "runbooks").glob("*.md")} - {"README.md"}

every_alert = pytest.mark.parametrize("rule", ALERTS, ids=lambda rule: rule["alert"])


def test_rules_are_what_prometheus_takes() -> None:
    assert f"{len(ALERTS)} rules found" in promtool("check", "rules", RULES)


@pytest.mark.parametrize("history", HISTORIES, ids=lambda path: path.stem)
def test_alerts_of_a_history_are_what_it_expects(history: Path) -> None:
    promtool("test", "rules", history)


@every_alert
def test_alert_is_tried_before_it_fires_while_it_does_and_after(rule: dict[str, Any]) -> None:
    """In the order of a history: quiet, firing, quiet."""
    tried = []
    for path in HISTORIES:
        for history in yaml.safe_load(path.read_text())["tests"]:
            mine = [
                each for each in history["alert_rule_test"] if each["alertname"] == rule["alert"]
            ]
            tried.append("".join("!" if each["exp_alerts"] else "." for each in mine))
    assert any(re.fullmatch(r"\.+!+\.+", each) for each in tried), tried


@every_alert
def test_alert_says_how_bad_what_and_what_to_do(rule: dict[str, Any]) -> None:
    assert rule["labels"]["severity"] in ("page", "warning")
    assert rule["annotations"].keys() == {"summary", "runbook_url"}
    assert (ROOT / rule["annotations"]["runbook_url"]).is_file()


@every_alert
def test_alert_is_on_the_page_of_metrics(rule: dict[str, Any]) -> None:
    runbook = rule["annotations"]["runbook_url"].removeprefix("docs/")
    begin = rf"\| `{rule['alert']}` \| {rule['labels']['severity']} \|"
    assert re.search(rf"{begin} [^|]+ \| \[[^]]+\]\({runbook}\) \|", PAGE)


def test_every_runbook_has_an_alert() -> None:
    assert {Path(rule["annotations"]["runbook_url"]).name for rule in ALERTS} == RUNBOOKS


@every_alert
def test_metric_of_an_alert_is_documented(rule: dict[str, Any]) -> None:
    named = {re.sub(r"_bucket$", "", name) for name in re.findall(r"duebridge_\w+", rule["expr"])}
    assert named <= set(re.findall(r"^\| `(duebridge_\w+)`", PAGE, re.MULTILINE))
