"""An embedded store for the whole run, and a floor for each test."""

import secrets
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from duebridge.config.models import Config
from duebridge.store.connection import Connection, open_connection
from duebridge.store.embedded import stop_embedded
from tests.support.command import Command, embedded_command
from tests.support.floor import Floor


@pytest.fixture(scope="session")
def embedded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    home = tmp_path_factory.mktemp("embedded")
    yield home
    stop_embedded(home)


@pytest.fixture(scope="session")
def connection(embedded: Path) -> Iterator[Connection]:
    connection = open_connection(f"embedded:{embedded}")
    yield connection
    connection.close()


@pytest.fixture(scope="module")
def started(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Command]:
    """The command on a store that a module's tests share, one after the other."""
    with embedded_command(tmp_path_factory.mktemp("cli")) as command:
        yield command


@pytest.fixture
def duebridge(started: Command) -> Command:
    """That command, on an empty store."""
    connection = started.connection()
    connection.client.flushall()
    connection.close()
    return started


@pytest.fixture
def build_floor(connection: Connection) -> Callable[..., Floor]:
    """Return a maker of floors: `worker` settings, and what to change in route `r`."""

    def build(
        worker: dict[str, Any] | None = None, *, is_watched: bool = False, **route: Any
    ) -> Floor:
        plain = {
            "target": {"broker": "memory", "topic": "t"},
            "dead_letter": {"broker": "memory", "topic": "dlt"},
            "retry": {"max_attempts": 3, "initial": "1s", "jitter": "none"},
        }
        routes = {"r": {**plain, **route}, "other": {"target": {"broker": "memory", "topic": "o"}}}
        config = Config.model_validate(
            {
                "version": 1,
                "brokers": {"memory": {"type": "memory"}},
                "worker": worker or {},
                "routes": routes,
            }
        )
        namespace = f"test-{secrets.token_hex(6)}"
        return Floor(connection, namespace, config, is_watched=is_watched)

    return build


@pytest.fixture
def floor(build_floor: Callable[..., Floor]) -> Floor:
    return build_floor()
