"""An embedded store for the whole run, a floor for each test, and the command on a store."""

import secrets
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from duebridge.admin.operator import Operator
from duebridge.config.load import load_config
from duebridge.store.server.connection import Connection, open_connection
from duebridge.store.server.embedded import stop_embedded
from tests.acceptance.desk_of_operator import OperatorsDesk
from tests.acceptance.site import Site, embedded_site, memory_config
from tests.support.command import Command, embedded_command
from tests.support.floor import Floor


@pytest.fixture(scope="session")
def embedded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    home = tmp_path_factory.mktemp("embedded")
    yield home
    stop_embedded(home)


@pytest.fixture(scope="session")
def connection(embedded: Path) -> Iterator[Connection]:
    with closing(open_connection(f"embedded:{embedded}")) as connection:
        yield connection


@pytest.fixture(scope="module")
def started(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Command]:
    """The command on a store that a module's tests share, one after the other."""
    with embedded_command(tmp_path_factory.mktemp("cli")) as command:
        yield command


@pytest.fixture
def client(started: Command) -> Iterator[Any]:
    """A client of Redis for that store."""
    with closing(started.connection()) as connection:
        yield connection.client


@pytest.fixture
def duebridge(started: Command, client: Any) -> Iterator[Command]:
    """That command, on an empty store; what a test changes in its configuration is undone."""
    client.flushall()
    text = started.file.read_text()
    yield started
    started.file.write_text(text)


@pytest.fixture
def operator(duebridge: Command) -> Iterator[Operator]:
    """Give the operator of that store."""
    with closing(duebridge.connection()) as connection:
        yield Operator(load_config(duebridge.file), connection)


@pytest.fixture
def desk(connection: Connection) -> OperatorsDesk:
    """A store as an operator reads it."""
    return OperatorsDesk(connection)


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    with embedded_site(tmp_path) as site:
        yield site


@pytest.fixture
def build_floor(connection: Connection) -> Callable[..., Floor]:
    """Return a maker of floors: `worker` settings, and what to change in route `r`."""

    def build(
        worker: dict[str, Any] | None = None, *, exports_gauges: bool = False, **route: Any
    ) -> Floor:
        plain = {
            "target": {"broker": "memory", "topic": "t"},
            "dead_letter": {"broker": "memory", "topic": "dlt"},
            "retry": {"max_attempts": 3, "initial": "1s", "jitter": "none"},
        }
        routes = {"r": {**plain, **route}, "other": {"target": {"broker": "memory", "topic": "o"}}}
        config = memory_config(routes, worker=worker or {})
        return Floor(
            connection, f"test-{secrets.token_hex(6)}", config, exports_gauges=exports_gauges
        )

    return build


@pytest.fixture
def floor(build_floor: Callable[..., Floor]) -> Floor:
    return build_floor()


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """Every script that this thread sends to the store from now on.

    What a test before left behind, such as an opening that was given up, may still call it.
    """
    counted: Counter[str] = Counter()
    plain, ours = Connection._run_once, threading.get_ident()

    def count(self, called, *given):
        if threading.get_ident() == ours:
            counted[called.name] += 1
        return plain(self, called, *given)

    monkeypatch.setattr(Connection, "_run_once", count)
    return counted
