"""Every object of every mode is what API servers and operators accept; Helm's lint finds nothing.

`schemas/` has strict schemas (an unknown key is refused): of the oldest Kubernetes that Chart.yaml
accepts, out of the wheel kubernetes-validate, and of the operators' custom resources.
"""

import json
from collections.abc import Iterator
from copy import deepcopy
from pathlib import Path

import pytest
from jsonschema import Draft7Validator

from tests.deploy.chart import MODES, Chart, Object, one, values_of

SCHEMAS = Path(__file__).parent / "schemas"


def validators() -> Iterator[tuple[str, Draft7Validator]]:
    """Yield a validator for each kind, by `apiVersion kind`."""
    for path in SCHEMAS.glob("*.json"):
        file = json.loads(path.read_text("utf-8"))
        for kind, schema in file["kinds"].items():
            yield kind, Draft7Validator({**schema, "$defs": file["$defs"]})


VALIDATORS = dict(validators())


def errors(rendered: Object) -> list[str]:
    """Return what is wrong with an object; a kind without a schema is wrong."""
    kind = f"{rendered['apiVersion']} {rendered['kind']}"
    if kind not in VALIDATORS:
        return [f"{kind}: no schema"]
    found = VALIDATORS[kind].iter_errors(rendered)
    return [f"{kind}: {error.json_path}: {error.message[:200]}" for error in found]


@pytest.mark.parametrize("mode", MODES)
def test_render_mode_makes_only_valid_objects_each_once(chart: Chart, mode: str) -> None:
    rendered = chart.mode(mode)
    assert rendered
    assert [error for each in rendered for error in errors(each)] == []
    names = [(each["kind"], each["metadata"]["name"]) for each in rendered]
    assert len(names) == len(set(names))


@pytest.mark.parametrize("mode", MODES)
def test_lint_mode_finds_nothing(chart: Chart, mode: str) -> None:
    chart.run("lint", "--strict", "deploy/helm/duebridge", "-f", str(values_of(mode)))


def test_validate_misspelled_key_or_unknown_kind_fails(chart: Chart) -> None:
    wrong = deepcopy(one(chart.mode("keda-prometheus"), "ScaledObject"))
    wrong["spec"]["minReplicas"] = wrong["spec"].pop("minReplicaCount")
    [error] = errors(wrong)
    assert "minReplicas" in error
    assert errors({**wrong, "kind": "Route"}) == ["keda.sh/v1alpha1 Route: no schema"]
