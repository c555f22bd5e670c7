"""Every object of every mode is what the API servers and operators take, old and new."""

from copy import deepcopy

import pytest

from tests.deploy.chart import MODES, Chart, one
from tests.deploy.validation import VERSIONS, faults


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("mode", MODES)
def test_render_mode_makes_only_valid_objects(chart: Chart, mode: str, version: str) -> None:
    rendered = chart.mode(mode)
    assert rendered
    assert [fault for each in rendered for fault in faults(each, version)] == []


@pytest.mark.parametrize("mode", MODES)
def test_lint_mode_finds_nothing(chart: Chart, mode: str) -> None:
    chart.run(
        "lint",
        "--strict",
        "deploy/helm/duebridge",
        "-f",
        f"deploy/helm/duebridge/ci/{mode}-values.yaml",
    )


@pytest.mark.parametrize("mode", MODES)
def test_render_mode_makes_each_object_once(chart: Chart, mode: str) -> None:
    names = [(each["kind"], each["metadata"]["name"]) for each in chart.mode(mode)]
    assert len(names) == len(set(names))


def test_validate_kind_without_schema_fails() -> None:
    route = {"apiVersion": "gateway.example/v1", "kind": "Route", "metadata": {"name": "a"}}
    assert list(faults(route, VERSIONS[0])) == ["gateway.example/v1 Route: no schema for this kind"]


def test_validate_misspelled_key_fails(chart: Chart) -> None:
    wrong = deepcopy(one(chart.mode("kafka"), "Deployment"))
    container = wrong["spec"]["template"]["spec"]["containers"][0]
    container["livenesProbe"] = container.pop("livenessProbe")
    [fault] = faults(wrong, VERSIONS[0])
    assert "livenesProbe" in fault


def test_validate_misspelled_key_of_custom_kind_fails(chart: Chart) -> None:
    wrong = deepcopy(one(chart.mode("keda-prometheus"), "ScaledObject"))
    wrong["spec"]["minReplicas"] = wrong["spec"].pop("minReplicaCount")
    [fault] = faults(wrong, VERSIONS[0])
    assert "minReplicas" in fault
