"""Scaling on what is due and will be: never below one, up at once, down slowly."""

import json
from pathlib import Path

import pytest

from tests.deploy.chart import MODES, Chart, ChartRefused, Object, one
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
SCALED = ("hpa", "keda-metrics-api", "keda-prometheus")


def behavior(chart: Chart, mode: str) -> Object:
    if mode == "hpa":
        found = one(chart.mode(mode), "HorizontalPodAutoscaler")["spec"]["behavior"]
    else:
        advanced = one(chart.mode(mode), "ScaledObject")["spec"]["advanced"]
        found = advanced["horizontalPodAutoscalerConfig"]["behavior"]
    return dict(found)


@pytest.mark.parametrize("mode", MODES)
def test_replicas_are_left_to_whoever_scales(chart: Chart, mode: str) -> None:
    spec = one(chart.mode(mode), "Deployment")["spec"]
    assert ("replicas" in spec) == (mode not in SCALED)


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
    assert metric["external"] == {
        "metric": {
            "name": "duebridge_due_within_60s",
            "selector": {"matchLabels": {"namespace": "shop"}},
        },
        "target": {"type": "AverageValue", "averageValue": "100000"},
    }


def test_keda_asks_prometheus_for_what_will_be_due(chart: Chart) -> None:
    spec = one(chart.mode("keda-prometheus"), "ScaledObject")["spec"]
    assert (spec["minReplicaCount"], spec["maxReplicaCount"]) == (1, 20)
    [trigger] = spec["triggers"]
    assert trigger["metadata"]["query"] == (
        'sum(max by (route, shard) (duebridge_due_within{window="60s",'
        'namespace="shop",service="demo-duebridge"}))'
    )
    assert trigger["metadata"]["threshold"] == "100000"
    assert trigger["authenticationRef"] == {"name": "prometheus"}


def test_query_of_keda_counts_each_shard_once_whoever_tells_of_it(
    chart: Chart, promtool: Promtool, tmp_path: Path
) -> None:
    [trigger] = one(chart.mode("keda-prometheus"), "ScaledObject")["spec"]["triggers"]
    history = {
        "evaluation_interval": "15s",
        "tests": [
            {
                "interval": "15s",
                "input_series": [{"series": text, "values": value} for text, value in TOLD.items()],
                "promql_expr_test": [
                    {
                        "expr": trigger["metadata"]["query"],
                        "eval_time": "15s",
                        "exp_samples": [{"labels": "{}", "value": 700 + 60 + 5}],
                    }
                ],
            }
        ],
    }
    file = tmp_path / "history.yaml"
    file.write_text(json.dumps(history), "utf-8")
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


def test_keda_without_an_answer_takes_no_worker_away(chart: Chart) -> None:
    fallback = one(chart.mode("keda-prometheus"), "ScaledObject")["spec"]["fallback"]
    assert fallback["behavior"] == "currentReplicasIfHigher"
    assert fallback["replicas"] >= 1


def test_keda_without_prometheus_is_refused(chart: Chart) -> None:
    with pytest.raises(ChartRefused, match=r"scaling\.keda\.serverAddress: expected"):
        chart.given({"scaling.mode": "keda"})


def test_scaling_with_less_than_its_least_is_refused(chart: Chart) -> None:
    with pytest.raises(ChartRefused, match=r"scaling\.max: expected at least scaling\.min \(11\)"):
        chart.given({"scaling.mode": "hpa", "scaling.min": 11})
