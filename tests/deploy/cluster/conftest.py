"""A cluster, services that its pods reach, and a release for each test."""

import os
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from uuid import uuid4

import pytest

from tests.deploy.cluster.bridge import Bridge
from tests.deploy.cluster.kube import Kube, Refused
from tests.deploy.cluster.stack import GIVEN, Stack, running_stack
from tests.support.checkout import downloaded

FIGURE = "figure"
RESTRICTED = {"pod-security.kubernetes.io/enforce": "restricted"}


@pytest.fixture(scope="session")
def kube() -> Iterator[Kube]:
    """Give a namespace whose pods have to be restricted; no cluster is a skip, also in CI."""
    kube = Kube(Path(downloaded("helm")), f"duebridge-{uuid4().hex[:8]}")
    try:
        kube.kubectl("get", "nodes", "--request-timeout=30s")
    except Refused as problem:
        pytest.skip(f"no cluster answers, set KUBECONFIG: {problem}")
    metadata = {"name": kube.namespace, "labels": RESTRICTED}
    kube.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": metadata})
    yield kube
    kube.kubectl("delete", "namespace", kube.namespace, "--wait=false")


@pytest.fixture(scope="session")
def stack(kube: Kube, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    with running_stack(tmp_path_factory.mktemp("services")) as stack:
        if stack is None:
            pytest.skip(f"set DUEBRIDGE_K8S_HOST, or {', '.join(GIVEN)}")
        yield stack


@pytest.fixture(scope="session")
def image(kube: Kube) -> str:
    return os.environ.get("DUEBRIDGE_K8S_IMAGE") or pytest.skip("set DUEBRIDGE_K8S_IMAGE")


@contextmanager
def fresh(kube: Kube, stack: Stack, image: str, home: Path) -> Iterator[Bridge]:
    with closing(Bridge(kube, stack, f"bridge-{uuid4().hex[:6]}", image, home)) as bridge:
        yield bridge


@pytest.fixture
def bridge(kube: Kube, stack: Stack, image: str, tmp_path: Path) -> Iterator[Bridge]:
    """Give a bridge of a test's own, not installed yet."""
    with fresh(kube, stack, image, tmp_path) as bridge:
        yield bridge


@pytest.fixture(scope="module")
def installed(
    kube: Kube, stack: Stack, image: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Bridge]:
    """Give an installed bridge to tests that leave it as it is."""
    with fresh(kube, stack, image, tmp_path_factory.mktemp("bridge")) as bridge:
        bridge.install()
        yield bridge


@pytest.fixture
def say(request: pytest.FixtureRequest) -> Callable[[str], None]:
    """Keep a figure for the summary: tests may run in other processes than it does."""
    return lambda text: request.node.user_properties.append((FIGURE, text))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print the figures of the tests that passed."""
    for report in terminalreporter.getreports("passed"):
        for name, text in report.user_properties:
            if name == FIGURE and report.when == "call":
                terminalreporter.write_line(f"  {text}")
