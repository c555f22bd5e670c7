"""Scaling on what is due and will be: never below one, up at once, down slowly."""

import json
import re
import shutil
from pathlib import Path

import pytest

from tests.deploy.chart import FOLDER, MODES, Chart, Object, objects, one, values_of
from tests.deploy.conftest import Promtool

MINE = 'namespace="shop",service="demo-duebridge",window="60s"'
# Of one shard two workers tell, each as it saw it last.
TOLD = {
    f'duebridge_due_within{{{MINE},route="a",shard="0",pod="x"}}': "700 700",
    f'duebridge_due_within{{{MINE},route="a",shard="0",pod="y"}}': "690 690",
    f'duebridge_due_within{{{MINE},route="a",shard="1",pod="x"}}': "60 60",
    f'duebridge_due_within{{{MINE},route="b",shard="0",pod="x"}}': "5 5",
    f'duebridge_due_within{{{MINE.replace("60s", "300s")},route="b",shard="0"}}': "9000 9000",
    f'duebridge_due_within{{{MINE.replace("shop", "other")},route="b",shard="0"}}': "9000 9000",
}
SCALED = ("hpa", "intakes", "keda-metrics-api", "keda-prometheus")


def behavior(chart: Chart, mode: str) -> Object:
    if mode == "hpa":
        found = one(chart.mode(mode), "HorizontalPodAutoscaler")["spec"]["behavior"]
    else:
        advanced = one(chart.mode(mode), "ScaledObject")["spec"]["advanced"]
        found = advanced["horizontalPodAutoscalerConfig"]["behavior"]
    return dict(found)


def test_replicas_are_left_to_whoever_scales(chart: Chart) -> None:
    specs = {mode: one(chart.mode(mode), "Deployment")["spec"] for mode in MODES}
    assert {mode for mode, spec in specs.items() if "replicas" not in spec} == {*SCALED}


POD = {"f:spec": {"f:replicas": {}, "f:template": {}}}
COUNT = {"f:spec": {"f:replicas": {}}}
HELM = {"manager": "helm", "operation": "Apply", "fieldsV1": POD}
HELM_3 = {**HELM, "operation": "Update"}
AUTOSCALER = {"manager": "kcm", "operation": "Update", "subresource": "scale", "fieldsV1": COUNT}
STATUS = {"manager": "kcm", "operation": "Update", "subresource": "status"}
ASKS = re.compile(r'lookup "apps/v1" "Deployment" \.Release\.Namespace \$name')
OTHER = {"manager": "policy", "operation": "Apply", "fieldsV1": {"f:metadata": {}}}


@pytest.mark.parametrize(
    ("managers", "expected"),
    [
        ([HELM], 5),  # none -> hpa: left out, the field would fall to 1
        ([HELM, AUTOSCALER], None),  # it owns the field, which stays as it is then
        ([HELM, STATUS], 5),
        ([HELM_3, OTHER, AUTOSCALER], 5),  # a merge of three sides would still take it away
    ],
)
def test_autoscaling_keeps_the_replicas_there_are(
    chart: Chart, tmp_path: Path, managers: list[Object], expected: int | None
) -> None:
    """Helm asks the API server for each Deployment; here the chart's copy takes it from a value."""
    folder = shutil.copytree(FOLDER, tmp_path / "chart")
    for name in ("_worker.tpl", "serve.yaml"):
        file = folder / "templates" / name
        asked, given = ASKS.subn("get .Values.global.live $name", file.read_text("utf-8"))
        assert given == 1
        file.write_text(asked, "utf-8")
    live = {"metadata": {"managedFields": managers}, "spec": {"replicas": 5}}
    names = ("demo-duebridge", "demo-duebridge-http")
    values = {"global": {"live": dict.fromkeys(names, live)}}
    values |= {"scaling": {"mode": "hpa"}, "serve": {"autoscaling": {"enabled": True}}}
    (file := tmp_path / "values.json").write_text(json.dumps(values), "utf-8")
    options = ("-f", str(values_of("serve")), "-f", str(file))
    rendered = list(objects(chart.run("template", "demo", str(folder), *options)))
    found = [one(rendered, "Deployment", name)["spec"].get("replicas") for name in names]
    assert found == [expected, expected]


@pytest.mark.parametrize("mode", SCALED)
def test_scale_up_is_at_once_and_down_one_by_one(chart: Chart, mode: str) -> None:
    up, down = behavior(chart, mode)["scaleUp"], behavior(chart, mode)["scaleDown"]
    assert up["stabilizationWindowSeconds"] == 0
    assert down["stabilizationWindowSeconds"] == 300
    assert down["policies"] == [{"type": "Pods", "value": 1, "periodSeconds": 60}]


def test_hpa_follows_the_external_metric(chart: Chart) -> None:
    spec = one(chart.mode("hpa"), "HorizontalPodAutoscaler")["spec"]
    assert (spec["minReplicas"], spec["maxReplicas"]) == (1, 5)
    assert spec["scaleTargetRef"]["name"] == "demo-duebridge"
    [metric] = spec["metrics"]
    selector = {"matchLabels": {"namespace": "shop"}}
    assert metric["external"] == {
        "metric": {"name": "duebridge_due_within_60s", "selector": selector},
        "target": {"type": "AverageValue", "averageValue": "100000"},
    }


def test_keda_asks_prometheus_and_without_an_answer_takes_no_worker_away(chart: Chart) -> None:
    spec = one(chart.mode("keda-prometheus"), "ScaledObject")["spec"]
    assert (spec["minReplicaCount"], spec["maxReplicaCount"]) == (1, 20)
    [trigger] = spec["triggers"]
    assert trigger["metadata"]["threshold"] == "100000"
    assert trigger["authenticationRef"] == {"name": "prometheus"}
    assert spec["fallback"]["behavior"] == "currentReplicasIfHigher"
    assert spec["fallback"]["replicas"] >= 1


def test_query_of_keda_counts_each_shard_once_whoever_tells_of_it(
    chart: Chart, promtool: Promtool, tmp_path: Path
) -> None:
    [trigger] = one(chart.mode("keda-prometheus"), "ScaledObject")["spec"]["triggers"]
    expected = {"expr": trigger["metadata"]["query"], "eval_time": "15s"}
    expected["exp_samples"] = [{"labels": "{}", "value": 700 + 60 + 5}]
    told = [{"series": text, "values": value} for text, value in TOLD.items()]
    test = {"interval": "15s", "input_series": told, "promql_expr_test": [expected]}
    file = tmp_path / "history.yaml"
    file.write_text(json.dumps({"evaluation_interval": "15s", "tests": [test]}), "utf-8")
    promtool("test", "rules", file)


def test_keda_asks_the_workers_own_page(chart: Chart) -> None:
    rendered = chart.mode("keda-metrics-api")
    [trigger] = one(rendered, "ScaledObject")["spec"]["triggers"]
    service = one(rendered, "Service")
    host = f"{service['metadata']['name']}.shop.svc"
    assert trigger["metadata"] == {
        "url": f"http://{host}:{service['spec']['ports'][0]['port']}/due",
        "valueLocation": "totals.due_within_s.300",
        "targetValue": "250000",
    }
