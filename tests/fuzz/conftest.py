"""An embedded store for the whole run; the seed and what was drawn, at its end."""

from collections.abc import Iterator

import pytest

from duebridge.store.connection import Connection, open_connection
from duebridge.store.embedded import stop_embedded
from tests.fuzz.budget import SEED, drawn

pytest.register_assert_rewrite("tests.fuzz.party")


@pytest.fixture(scope="session")
def store_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    home = tmp_path_factory.mktemp("fuzz")
    yield f"embedded:{home}"
    stop_embedded(home)


@pytest.fixture(scope="session")
def connection(store_url: str) -> Iterator[Connection]:
    connection = open_connection(store_url)
    yield connection
    connection.close()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if drawn:
        counts = ", ".join(f"{count} {kind}" for kind, count in sorted(drawn.items()))
        terminalreporter.write_line(f"fuzz: {counts}; DUEBRIDGE_FUZZ_SEED={SEED}")
