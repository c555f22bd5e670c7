"""What the workflows say, step by step."""

import tomllib
from typing import Any

import yaml

from tests.support.checkout import ROOT

FOLDER = ROOT / ".github" / "workflows"
TEXT = (FOLDER / "release.yml").read_text("utf-8")
JOBS: dict[str, Any] = yaml.safe_load(TEXT)["jobs"]
CI: dict[str, Any] = yaml.safe_load((FOLDER / "ci.yaml").read_text("utf-8"))["jobs"]
VERSION = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["version"]
SOURCE = "https://git.example/shop/duebridge"


def script(job: str, name: str) -> str:
    """Return what a step of the release runs."""
    [step] = [each for each in JOBS[job]["steps"] if each.get("name") == name]
    return str(step["run"])
