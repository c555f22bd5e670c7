"""Intakes in pods of their own: what they run, who finds them, and how they are scaled."""

import json
from pathlib import Path

import pytest

from tests.deploy.chart import Chart, ChartRefused, Object, container_of, loaded, one, pod_of
from tests.deploy.conftest import Promtool

OWN = "demo-duebridge-retries"
NAMES = {"demo-duebridge-plugin": "plugin", OWN: "orders.retries"}
LAG = 'duebridge_intake_lag{namespace="shop",intake="orders.retries"'


@pytest.fixture
def rendered(chart: Chart) -> list[Object]:
    return chart.mode("intakes")


def test_intake_worker_runs_its_intake_alone_and_is_like_the_workers_else(
    rendered: list[Object],
) -> None:
    for name, intake in NAMES.items():
        mine, workers = container_of(rendered, "Deployment", name), container_of(rendered)
        assert mine["args"] == [*workers["args"], "--only", f"intake:{intake}"]
        assert intake in loaded(rendered).intakes
        own = ("args", "resources")
        assert {key: value for key, value in mine.items() if key not in own} == {
            key: value for key, value in workers.items() if key not in own
        }
        grace = "terminationGracePeriodSeconds"
        assert pod_of(rendered, "Deployment", name)[grace] == pod_of(rendered)[grace]
    assert container_of(rendered, "Deployment", OWN)["resources"]["requests"]["cpu"] == "1"


def test_selectors_of_an_intake_find_its_pods_and_no_others(rendered: list[Object]) -> None:
    pods = {
        name: one(rendered, "Deployment", name)["spec"]["template"]["metadata"]["labels"]
        for name in ("demo-duebridge", *NAMES)
    }
    for name in NAMES:
        for selector in (
            one(rendered, "Deployment", name)["spec"]["selector"]["matchLabels"],
            one(rendered, "Service", name)["spec"]["selector"],
            one(rendered, "PodDisruptionBudget", name)["spec"]["selector"]["matchLabels"],
        ):
            assert [pod for pod, has in pods.items() if selector.items() <= has.items()] == [name]


def test_metrics_and_probes_of_intakes_are_reached_as_those_of_workers(
    rendered: list[Object],
) -> None:
    [monitored] = one(rendered, "ServiceMonitor")["spec"]["selector"]["matchExpressions"]
    [allowed] = one(rendered, "NetworkPolicy")["spec"]["podSelector"]["matchExpressions"]
    assert "intake" in monitored["values"]
    assert "intake" in allowed["values"]


def test_intake_follows_its_lag_beside_the_workers_backlog(rendered: list[Object]) -> None:
    spec = one(rendered, "ScaledObject", OWN)["spec"]
    assert (spec["minReplicaCount"], spec["maxReplicaCount"]) == (1, 6)
    assert spec["scaleTargetRef"]["name"] == OWN
    assert spec["fallback"]["replicas"] == 3
    [trigger] = spec["triggers"]
    assert trigger["metadata"]["threshold"] == "20000"
    assert "replicas" not in one(rendered, "Deployment", OWN)["spec"]
    [workers] = one(rendered, "ScaledObject")["spec"]["triggers"]
    assert "duebridge_due_within" in workers["metadata"]["query"]


def test_query_of_an_intake_adds_the_shares_of_its_processes(
    rendered: list[Object], promtool: Promtool, tmp_path: Path
) -> None:
    [trigger] = one(rendered, "ScaledObject", OWN)["spec"]["triggers"]
    told = {
        f'{LAG},service="{OWN}",pod="x"}}': "700 700",
        f'{LAG},service="demo-duebridge",pod="y"}}': "690 690",
        f'{LAG},service="{OWN}",pod="z"}}': "NaN NaN",  # it does not know yet
        f'{LAG.replace("orders.retries", "plugin")},service="{OWN}",pod="y"}}': "9000 9000",
        f'{LAG.replace("shop", "other")},service="{OWN}",pod="y"}}': "9000 9000",
        f'{LAG},service="other-duebridge",pod="x"}}': "9000 9000",
    }
    expected = {"expr": trigger["metadata"]["query"], "eval_time": "15s"}
    expected["exp_samples"] = [{"labels": "{}", "value": 700 + 690}]
    series = [{"series": text, "values": value} for text, value in told.items()]
    test = {"interval": "15s", "input_series": series, "promql_expr_test": [expected]}
    file = tmp_path / "history.yaml"
    file.write_text(json.dumps({"evaluation_interval": "15s", "tests": [test]}), "utf-8")
    promtool("test", "rules", file)


def test_keda_without_prometheus_asks_the_intakes_own_pods(chart: Chart) -> None:
    changed = chart.given({"scaling.keda": {"trigger": "metrics-api"}}, mode="intakes")
    [trigger] = one(changed, "ScaledObject", OWN)["spec"]["triggers"]
    assert trigger["metadata"] == {
        "url": f"http://{OWN}.shop.svc:8080/due",
        "valueLocation": r"intakes.orders\.retries.lag",
        "targetValue": "20000",
    }
    assert trigger["metricType"] == "Value"  # of one pod's share


def test_hpa_of_an_intake_names_the_intake_to_the_adapter(chart: Chart) -> None:
    changed = chart.given({"scaling.mode": "hpa"}, mode="intakes")
    [metric] = one(changed, "HorizontalPodAutoscaler", OWN)["spec"]["metrics"]
    assert metric["external"] == {
        "metric": {
            "name": "duebridge_intake_lag",
            "selector": {"matchLabels": {"intake": "orders.retries"}},
        },
        "target": {"type": "AverageValue", "averageValue": "20000"},
    }


def test_intake_without_scaling_has_as_many_pods_as_it_says(chart: Chart) -> None:
    fixed = chart.given({"scaling.mode": "none"}, mode="intakes")
    assert one(fixed, "Deployment", OWN)["spec"]["replicas"] == 3
    assert one(fixed, "Deployment", "demo-duebridge-plugin")["spec"]["replicas"] == 2
    assert {each["kind"] for each in fixed} & {"ScaledObject", "HorizontalPodAutoscaler"} == set()


@pytest.mark.parametrize(
    ("values", "named"),
    [
        ({"intakeWorkers": {"a": {"replicas": 0}}}, "intakeWorkers/a/replicas"),
        (
            {"intakeWorkers": {"a": {"intake": "plugin", "min": 3, "max": 2}}},
            r"intakeWorkers\.a\.max: expected",
        ),
        (
            {"intakeWorkers": {"n" * 40: {"intake": "plugin"}}},
            r"intakeWorkers\.n+: expected at most 52",
        ),
        (
            {"intakeWorkers": {"http": {"intake": "plugin"}}},
            r"intakeWorkers\.http: expected another name than check, http and valkey",
        ),
    ],
)
def test_wrong_intake_worker_is_refused_by_its_place(
    chart: Chart, values: dict[str, object], named: str
) -> None:
    with pytest.raises(ChartRefused, match=named):
        chart.given(values, mode="intakes")


@pytest.mark.parametrize(
    ("worker", "got"), [({"plugins": {}}, "plugins"), ({"own": {"intake": "retries"}}, "retries")]
)
def test_intake_worker_of_an_intake_that_is_not_there_is_refused_naming_those_that_are(
    chart: Chart, worker: dict[str, object], got: str
) -> None:
    [key] = worker
    there = rf"expected an intake of config\.intakes, which has orders\.retries, plugin; got {got}"
    with pytest.raises(ChartRefused, match=rf"intakeWorkers\.{key}: {there}"):
        chart.given({"intakeWorkers": worker}, mode="intakes")


def test_intake_worker_beside_a_config_map_of_its_own_may_have_any_name(chart: Chart) -> None:
    rendered = chart.given({"intakeWorkers": {"theirs": {}}}, mode="existing-config")
    args = container_of(rendered, "Deployment", "demo-duebridge-theirs")["args"]
    assert args[-2:] == ["--only", "intake:theirs"]


def test_name_of_digits_alone_stays_text(chart: Chart) -> None:
    own = {"intakeWorkers": {"7": {"intake": "plugin"}}, "env": {"ON": "1"}}
    rendered = chart.given(own, mode="intakes")
    template = one(rendered, "Deployment", "demo-duebridge-7")["spec"]["template"]
    assert template["metadata"]["labels"]["duebridge/intake"] == "7"
    [container] = template["spec"]["containers"]
    assert "ON" in {each["name"] for each in container["env"]}
