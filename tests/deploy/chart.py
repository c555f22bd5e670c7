"""The chart as Helm renders it, object by object."""

import json
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from duebridge.config.load import load_config_text
from duebridge.config.models import Config
from tests.support.checkout import ROOT

FOLDER = ROOT / "deploy" / "helm" / "duebridge"
MODES = tuple(
    sorted(path.name.removesuffix("-values.yaml") for path in (FOLDER / "ci").glob("*-values.yaml"))
)
Object = dict[str, Any]
NAMED = ("intake", "http", "test", "check")
# Helm ends before its garbage is worth collecting: a quarter less of its work.
ENVIRONMENT = {**os.environ, "GOGC": "off"}


class ChartRefused(Exception):
    """Helm's own words."""


class Chart:
    """Runs Helm on the chart; a rendering is asked for once."""

    def __init__(self, helm: str) -> None:
        self.helm = helm
        self.mode = cache(self._mode)

    def _mode(self, name: str) -> list[Object]:
        """Return the objects of ci/NAME-values.yaml."""
        return self.template("-f", str(values_of(name)))

    def template(self, *options: str) -> list[Object]:
        """Return the objects of these options; raises `ChartRefused`."""
        return list(objects(self.run("template", "demo", str(FOLDER), "-n", "shop", *options)))

    def given(self, values: Object, mode: str = "kafka") -> list[Object]:
        """Return the objects of a mode with these values over it."""
        changes = (f"--set-json={key}={json.dumps(value)}" for key, value in values.items())
        return self.template("-f", str(values_of(mode)), *changes)

    def run(self, *words: str) -> str:
        """Return what Helm prints; raises `ChartRefused`."""
        command = [self.helm, *words]
        done = subprocess.run(command, capture_output=True, text=True, check=False, env=ENVIRONMENT)
        if done.returncode:
            raise ChartRefused(done.stderr + done.stdout)
        return done.stdout


def values_of(mode: str) -> Path:
    """Return the values of a mode."""
    return FOLDER / "ci" / f"{mode}-values.yaml"


def with_define(into: Path, name: str, body: str) -> Path:
    """Copy the chart with another body of a define: what only a cluster answers, given as text."""
    shutil.copytree(FOLDER, into)
    whole = re.compile(
        rf'(define "{re.escape(name)}" -}}}}\n).*?(\n{{{{- end -}}}}\n\n)', re.DOTALL
    )
    count = 0
    for file in (into / "templates").glob("*.tpl"):
        text, found = whole.subn(lambda parts: parts[1] + body + parts[2], file.read_text("utf-8"))
        file.write_text(text, "utf-8")
        count += found
    assert count == 1, f"{name}: {count}"
    return into


class _UniqueKeys(yaml.CSafeLoader):
    """Refuses a key that is given twice; plain YAML lets the last one win."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        keys = [key.value for key, _ in node.value]
        if len(keys) != len(set(keys)):
            raise yaml.constructor.ConstructorError(None, None, f"twice: {keys}", node.start_mark)
        return super().construct_mapping(node, deep)


def objects(text: str) -> Iterator[Object]:
    """Yield every document of a rendering."""
    yield from filter(None, yaml.load_all(text, _UniqueKeys))


def one(rendered: list[Object], kind: str, name: str | None = None) -> Object:
    """Return the only object of a kind, or that of a name; some components have to be named."""
    of_kind = [each for each in rendered if each["kind"] == kind]
    if name is None:
        of_kind = [each for each in of_kind if component_of(each) not in NAMED]
    if kind == "ServiceAccount":  # the check's own goes before this one is made
        of_kind = [each for each in of_kind if not is_hook(each)]
    found = [each for each in of_kind if name in (None, each["metadata"]["name"])]
    assert len(found) == 1, f"{kind} {name}: {len(found)}"
    return found[0]


def is_hook(rendered: Object) -> bool:
    """Whether Helm makes an object for a moment alone, and keeps it out of the release."""
    return "helm.sh/hook" in rendered["metadata"].get("annotations", {})


def component_of(rendered: Object) -> str | None:
    """Return what an object is a part of."""
    labels: dict[str, str] = rendered["metadata"].get("labels", {})
    return labels.get("app.kubernetes.io/component")


def pod_of(rendered: list[Object], kind: str = "Deployment", name: str | None = None) -> Object:
    """Return the pod that the only object of a kind makes."""
    spec: Object = one(rendered, kind, name)["spec"]["template"]["spec"]
    return spec


def container_of(
    rendered: list[Object], kind: str = "Deployment", name: str | None = None
) -> Object:
    """Return the first container of such a pod."""
    container: Object = pod_of(rendered, kind, name)["containers"][0]
    return container


def pod_templates(rendered: list[Object]) -> Iterator[tuple[str, Object]]:
    """Yield every pod that these objects make, by the name of what makes it."""
    for each in rendered:
        spec = each.get("spec", {})
        spec = spec.get("jobTemplate", {}).get("spec", spec)
        if "containers" in spec.get("template", {}).get("spec", {}):
            yield f"{each['kind']}/{each['metadata']['name']}", spec["template"]


def configuration(rendered: list[Object]) -> str:
    """Return the file that the workers read."""
    worker = one(rendered, "Deployment")["metadata"]["name"]
    return str(one(rendered, "ConfigMap", worker)["data"]["duebridge.yaml"])


def loaded(rendered: list[Object]) -> Config:
    """Return that file as the program reads it."""
    return load_config_text(configuration(rendered), "duebridge.yaml")
