#!/usr/bin/env python3
"""The chart as a release publishes it: `publish.py FOLDER`, then `helm package FOLDER`.

The checkout's chart names images without a registry, and no address of its own or of its alerts'
runbooks, since a checkout does not know where it will be published. The environment says so:
`REGISTRY` (HOST/OWNER), `SOURCE` (the repository's URL) and `REVISION` (the commit). Only the
standard library is needed.
"""

import json
import os
import re
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
CHART = ROOT / "deploy" / "helm" / "duebridge"
IMAGES = {"worker": ("", "duebridge"), "spark": ("  ", "duebridge-spark")}
KINDS = {"Added", "Changed", "Deprecated", "Removed", "Fixed", "Security"}
Change = dict[str, str]


def with_registry(values: str, registry: str) -> str:
    """Return values whose own images are there: the host as registry, the rest in repository."""
    host, _, owner = registry.partition("/")
    for indent, name in IMAGES.values():
        block = (
            rf'(?m)^({indent}image:\n{indent}  registry: )""(.*\n{indent}  repository: )({name})$'
        )
        put = (
            rf"\g<1>{json.dumps(host)}\g<2>{owner}/\g<3>" if owner else rf'\g<1>"{host}"\g<2>\g<3>'
        )
        values, count = re.subn(block, put, values)
        if count != 1:
            raise SystemExit(f"values.yaml: expected the image {name} once; got {count}")
    return values


def with_runbooks(values: str, pages: str) -> str:
    """Return values whose alerts name their runbooks, under this address."""
    line = r'(?m)^(    runbookUrl: )""'
    values, count = re.subn(line, rf"\g<1>{json.dumps(pages)}", values)
    if count != 1:
        raise SystemExit(f"values.yaml: expected one empty runbookUrl; got {count}")
    return values


def changes(log: str, version: str) -> Iterator[Change]:
    """Yield what a section of CHANGELOG.md says, as Artifact Hub shows it."""
    section = re.search(rf"(?ms)^## \[{re.escape(version)}\].*?\n(.*?)(?=^## |\Z)", log)
    kind = ""
    for part in re.split(r"(?m)^(?=### |- )", section[1] if section else ""):
        if part.startswith("### "):
            kind = part[4:].strip()
        elif part.startswith("- ") and kind in KINDS:
            yield {"kind": kind.lower(), "description": " ".join(part[2:].split())}


def about(chart: str, log: str, registry: str, source: str, revision: str) -> str:
    """Return Chart.yaml with where chart and images come from; JSON is YAML, too."""
    version = re.findall(r"(?m)^version: (.+)$", chart)[0]
    of_hub = {
        "images": [
            {"name": name, "image": f"{registry}/{repository}:{version}"}
            for name, (_, repository) in IMAGES.items()
        ],
        "changes": list(changes(log, version)),
        "links": [{"name": "documentation", "url": f"{source}/blob/{revision}/docs/kubernetes.md"}],
    }
    annotations = (
        f"  artifacthub.io/{name}: {json.dumps(json.dumps(of))}\n" for name, of in of_hub.items()
    )
    icon = f"{source}/raw/{revision}/bridge/duebridge/console/static/favicon.svg"
    own = {"home": source, "sources": [source], "icon": icon}
    fields = (f"{name}: {json.dumps(of)}\n" for name, of in own.items())
    head, found, tail = chart.partition("annotations:\n")
    return "".join([head, *fields, found, *annotations, tail])


def main(folder: Path) -> None:
    """Write the chart to a new folder."""
    registry, source, revision = (os.environ[name] for name in ("REGISTRY", "SOURCE", "REVISION"))
    if not (registry and source and revision):
        raise SystemExit("REGISTRY, SOURCE, REVISION: expected all; one is empty")
    shutil.copytree(CHART, folder)
    values, chart = folder / "values.yaml", folder / "Chart.yaml"
    given = with_registry(values.read_text("utf-8"), registry)
    values.write_text(with_runbooks(given, f"{source}/blob/{revision}/"), "utf-8")
    log = (ROOT / "CHANGELOG.md").read_text("utf-8")
    told = about(chart.read_text("utf-8"), log, registry, source, revision)
    chart.write_text(told, "utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
