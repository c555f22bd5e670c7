"""Helm, fetched once by whoever comes first, and the images of this checkout."""

import subprocess
import sys

import pytest
from deploy.images.tree import Wanted

from tests.conftest import ROOT, missing
from tests.deploy.chart import Chart
from tests.deploy.image import Image, unpacked


@pytest.fixture(scope="session")
def chart() -> Chart:
    fetch = [sys.executable, str(ROOT / "deploy" / "local" / "helm_tools.py")]
    done = subprocess.run(fetch, capture_output=True, text=True, check=False)
    if done.returncode:
        missing("helm", done.stderr.strip())
    return Chart(f"{done.stdout.strip()}/helm")


@pytest.fixture(scope="session")
def worker_image(tmp_path_factory: pytest.TempPathFactory) -> Image:
    return unpacked(Wanted("worker", "linux/amd64"), tmp_path_factory.mktemp("worker"))


@pytest.fixture(scope="session")
def spark_image(tmp_path_factory: pytest.TempPathFactory) -> Image:
    return unpacked(Wanted("spark", "linux/amd64"), tmp_path_factory.mktemp("spark"))
