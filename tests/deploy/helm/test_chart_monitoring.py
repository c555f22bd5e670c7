"""What Prometheus' operator and Grafana get: monitors, alerts and a dashboard, by release."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.deploy.chart import FOLDER, Chart, ChartRefused, Object, objects, one, values_of
from tests.deploy.conftest import Promtool
from tests.deploy.helm.test_chart_values import errors

RULES = "monitoring.rules"
RELEASE = 'namespace="shop",release="demo"'
LABELLED = ("serviceMonitor", "rules", "dashboard")
OF_ALL: Object = {"monitoring.owner": "shop.demo"}


def alerts_of(chart: Chart, runbooks: str = "", **changes: object) -> dict[str, dict[str, Any]]:
    """Return the alerts by name, with these changes of monitoring.rules.alerts."""
    given = {f"{RULES}.alerts": changes, f"{RULES}.runbookUrl": runbooks}
    rendered = chart.given(given | OF_ALL, mode="monitoring")
    [group] = one(rendered, "PrometheusRule")["spec"]["groups"]
    return {rule["alert"]: rule for rule in group["rules"]}


def given_alerts() -> dict[str, dict[str, Any]]:
    [group] = yaml.safe_load((FOLDER / "files" / "alerts.yaml").read_text("utf-8"))["groups"]
    return {rule["alert"]: rule for rule in group["rules"]}


def test_monitor_finds_the_service_and_its_port(chart: Chart) -> None:
    rendered = chart.mode("monitoring")
    monitor, service = one(rendered, "ServiceMonitor"), one(rendered, "Service")
    [endpoint] = monitor["spec"]["endpoints"]
    selected = monitor["spec"]["selector"]["matchLabels"]
    assert selected.items() <= service["metadata"]["labels"].items()
    assert endpoint["port"] == service["spec"]["ports"][0]["name"]
    assert (endpoint["path"], endpoint["interval"]) == ("/metrics", "30s")
    assert monitor["metadata"]["labels"]["release"] == "prometheus"


def test_monitor_names_the_release_and_then_relabels_as_given(chart: Chart) -> None:
    own = {"targetLabel": "team", "replacement": "shop"}
    drop = {"action": "drop", "sourceLabels": ["__name__"], "regex": "python_.*"}
    given = {"relabelings": [own], "metricRelabelings": [drop]}
    changes = {f"monitoring.serviceMonitor.{key}": value for key, value in given.items()}
    monitor = one(chart.given(changes, mode="monitoring"), "ServiceMonitor")
    assert errors(monitor) == []
    [endpoint] = monitor["spec"]["endpoints"]
    source = "__meta_kubernetes_service_label_app_kubernetes_io_instance"
    assert endpoint["relabelings"] == [{"sourceLabels": [source], "targetLabel": "release"}, own]
    assert endpoint["metricRelabelings"] == [drop]


def test_label_of_monitoring_is_nearer_than_one_of_all_objects(chart: Chart) -> None:
    team: Object = {f"monitoring.{part}.labels": {"team": "watch"} for part in LABELLED}
    rendered = chart.given({"commonLabels": {"team": "shop"}, **team}, mode="monitoring")
    made = [one(rendered, kind) for kind in ("ServiceMonitor", "PrometheusRule")]
    made.append(one(rendered, "ConfigMap", "demo-duebridge-dashboard"))
    assert [each["metadata"]["labels"]["team"] for each in made] == ["watch"] * 3
    assert one(rendered, "Service")["metadata"]["labels"]["team"] == "shop"


def test_monitor_of_serve_is_made_if_it_has_a_token(chart: Chart) -> None:
    enabled: Object = {"monitoring.serviceMonitor.enabled": True}
    rendered = chart.given(enabled, mode="serve")
    assert [each["kind"] for each in rendered].count("ServiceMonitor") == 1
    token = {"monitoring.serviceMonitor.serveToken": {"secret": "scrape", "key": "token"}}
    rendered = chart.given(enabled | token, mode="serve")
    monitor, service = (
        one(rendered, kind, "demo-duebridge-http") for kind in ("ServiceMonitor", "Service")
    )
    assert errors(monitor) == []
    [endpoint] = monitor["spec"]["endpoints"]
    assert endpoint["authorization"] == {"credentials": {"name": "scrape", "key": "token"}}
    assert endpoint["port"] == service["spec"]["ports"][0]["name"]
    [component] = monitor["spec"]["selector"]["matchExpressions"]
    assert service["metadata"]["labels"][component["key"]] in component["values"]


def test_runbooks_of_alerts_are_absolute_or_left_out(chart: Chart) -> None:
    pages = {name: rule["annotations"]["runbook_url"] for name, rule in given_alerts().items()}
    address = "https://git.example.com/duebridge/"
    rules = alerts_of(chart, address)
    assert {name: rule["annotations"]["runbook_url"] for name, rule in rules.items()} == {
        name: address + page for name, page in pages.items()
    }
    assert not any("runbook_url" in rule["annotations"] for rule in alerts_of(chart).values())


def test_rules_and_dashboard_are_those_of_the_chart(chart: Chart) -> None:
    rules = given_alerts()
    for rule in rules.values():
        del rule["annotations"]["runbook_url"]
    assert alerts_of(chart) == rules
    rendered = chart.given(OF_ALL, mode="monitoring")
    made = one(rendered, "ConfigMap", "demo-duebridge-dashboard")
    assert made["metadata"]["labels"]["grafana_dashboard"] == "1"
    dashboard = json.loads((FOLDER / "files" / "dashboard.json").read_text("utf-8"))
    assert json.loads(made["data"]["duebridge.json"]) == dashboard


@pytest.mark.parametrize(
    ("alert", "threshold", "said"),
    [
        ("DuebridgeLate", 120, ") > 120\n"),
        ("DuebridgeLatenessHigh", 0.5, " > 0.5"),
        ("DuebridgeIntakeLag", 300, "> 300 * sum"),
        ("DuebridgeDead", 10, "[15m])) > 10\n"),
        ("DuebridgeHydrateMissed", 0.25, "< 0.25 * max"),
        ("DuebridgeColdLate", 3600, "<= 3600"),
        ("DuebridgeLargeShard", 5e6, "> 5e+06"),
        ("DuebridgeAbsentRoute", 9, "> 9"),
    ],
)
def test_threshold_of_an_alert_is_the_given_one(
    chart: Chart, promtool: Promtool, tmp_path: Path, alert: str, threshold: float, said: str
) -> None:
    rule = alerts_of(chart, **{alert: {"threshold": threshold}})[alert]
    assert said in rule["expr"]
    changed = re.sub(r" (>|<=?) -?[0-9][0-9.e+]*", r" \1", rule["expr"])
    assert changed == re.sub(r" (>|<=?) -?[0-9][0-9.e+]*", r" \1", given_alerts()[alert]["expr"])
    assert promtool("check", "rules", written(tmp_path, [rule]))


def test_alert_is_left_out_and_changed_as_given(chart: Chart) -> None:
    changes = {"for": "7m", "severity": "info"}
    made = alerts_of(chart, DuebridgeSuspects={"enabled": False}, DuebridgeLate=changes)
    assert given_alerts().keys() - made.keys() == {"DuebridgeSuspects"}
    assert made["DuebridgeLate"]["for"] == "7m"
    assert made["DuebridgeLate"]["labels"] == {"severity": "info"}


@pytest.mark.parametrize(
    ("alert", "change", "named"),
    [
        ("DuebridgeEarly", {"enabled": False}, "DuebridgeEarly: expected one of DuebridgeLate"),
        ("DuebridgeStoreUnfit", {"threshold": 2}, "StoreUnfit.threshold: expected none"),
        ("DuebridgeLate", {"limit": 2}, "limit"),
    ],
)
def test_wrong_change_of_an_alert_is_refused(
    chart: Chart, alert: str, change: Object, named: str
) -> None:
    with pytest.raises(ChartRefused, match=named):
        alerts_of(chart, **{alert: change})


def test_own_rules_and_dashboard_see_this_release_alone(
    chart: Chart, promtool: Promtool, tmp_path: Path
) -> None:
    rendered = chart.mode("monitoring")
    [group] = one(rendered, "PrometheusRule")["spec"]["groups"]
    data = one(rendered, "ConfigMap", "demo-duebridge-dashboard")["data"]
    dashboard = json.loads(data["duebridge-shop.demo.json"])
    panels = [
        target["expr"] for panel in dashboard["panels"] for target in panel.get("targets", ())
    ]
    exprs = [rule["expr"] for rule in group["rules"]] + [each.replace(", ", ",") for each in panels]
    for expr in exprs:
        assert len(re.findall(r"duebridge_\w+", expr)) == expr.count(RELEASE), expr
    assert promtool("check", "rules", written(tmp_path, group["rules"]))
    names = [each["name"] for each in dashboard["templating"]["list"]]
    assert names == ["datasource", "route"]
    assert (dashboard["title"], dashboard["uid"]) != ("duebridge", "duebridge")


def of_two_releases(chart: Chart, *options: str) -> Iterator[list[Object]]:
    """Yield what two releases of two teams make of the same values."""
    for name, namespace in (("demo", "shop"), ("other", "bank")):
        words = ("template", name, str(FOLDER), "-n", namespace, "-f", str(values_of("monitoring")))
        yield list(objects(chart.run(*words, *options)))


@pytest.mark.parametrize("owner", ["", "shop.demo"])
def test_alert_of_a_release_comes_once_whoever_else_has_rules(
    chart: Chart, promtool: Promtool, tmp_path: Path, owner: str
) -> None:
    made = of_two_releases(chart, f"--set=monitoring.owner={owner}")
    rules = [each["spec"] for found in made for each in found if each["kind"] == "PrometheusRule"]
    files = [f"{number}.json" for number in range(len(rules))]
    for file, spec in zip(files, rules, strict=True):
        (tmp_path / file).write_text(json.dumps(spec), "utf-8")
    promtool("test", "rules", written_history(tmp_path, files))


def written_history(folder: Path, files: list[str]) -> Path:
    """Return a test of these rules: one release of two is late, and one alert says so."""
    words = 'namespace="bank", release="other", route="r"'
    values = {"duebridge_oldest_due_age_seconds": "900x30", "duebridge_store_up": "1x30"}
    series = [{"series": f"{name}{{{words}}}", "values": each} for name, each in values.items()]
    expected = {
        "exp_labels": {"severity": "page", "namespace": "bank", "release": "other", "route": "r"},
        "exp_annotations": {"summary": "r: an envelope has been due for 15m 0s"},
    }
    alerts = {"eval_time": "20m", "alertname": "DuebridgeLate", "exp_alerts": [expected]}
    test = {"interval": "1m", "input_series": series, "alert_rule_test": [alerts]}
    history = {"rule_files": files, "evaluation_interval": "1m", "tests": [test]}
    file = folder / "history.json"
    file.write_text(json.dumps(history), "utf-8")
    return file


def test_dashboards_of_two_releases_are_two_or_one(chart: Chart) -> None:
    for owner, count in [("", 2), ("shop.demo", 1)]:
        boards = [
            (file, json.loads(text)["uid"])
            for made in of_two_releases(chart, f"--set=monitoring.owner={owner}")
            for each in made
            if each["kind"] == "ConfigMap" and each["metadata"]["name"].endswith("-dashboard")
            for file, text in each["data"].items()
        ]
        files, uids = zip(*boards, strict=True)
        assert len(set(files)) == len(set(uids)) == len(boards) == count


def test_notes_say_whose_alerts_a_release_has(chart: Chart) -> None:
    words = ("install", "demo", str(FOLDER), "-n", "shop", "-f", str(values_of("monitoring")))
    for owner, is_said in [("bank.other", True), ("shop.demo", False), ("", False)]:
        said = chart.run(*words, "--dry-run=client", f"--set=monitoring.owner={owner}")
        assert ("those of the release bank.other" in said.partition("NOTES:")[2]) == is_said


def test_own_rules_see_what_another_monitor_gives_no_labels(chart: Chart) -> None:
    enabled: Object = {"monitoring.rules.enabled": True}
    [group] = one(chart.given(enabled), "PrometheusRule")["spec"]["groups"]
    where = 'namespace=~"shop|",release=~"demo|"'
    assert all(where in rule["expr"] for rule in group["rules"])


def written(folder: Path, rules: list[dict[str, Any]]) -> Path:
    """Return a file of these rules, as promtool reads them."""
    file = folder / "rules.yaml"
    file.write_text(json.dumps({"groups": [{"name": "own", "rules": rules}]}), "utf-8")
    return file
