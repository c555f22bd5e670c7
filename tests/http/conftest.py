"""One Redis and one server for the tests of a process; some have servers of their own."""

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.support.command import Command
from tests.support.serving import Served, serving, store_server


@pytest.fixture(scope="session")
def store_port(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    with store_server(tmp_path_factory.mktemp("redis")) as port:
        yield port


@pytest.fixture(scope="session")
def store_url(store_port: int) -> str:
    return f"redis://127.0.0.1:{store_port}"


@pytest.fixture(scope="session")
def served(tmp_path_factory: pytest.TempPathFactory, store_url: str) -> Iterator[Served]:
    with serving(tmp_path_factory.mktemp("shared"), store_url) as served:
        yield served


@pytest.fixture
def client(served: Served) -> Iterator[httpx.Client]:
    """A client that may do everything."""
    with served.client() as client:
        yield client


@pytest.fixture
def duebridge(tmp_path: Path, store_url: str) -> Command:
    """The command on that Redis."""
    return Command(tmp_path, store_url)
