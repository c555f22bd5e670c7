"""Every test of the delay store runs on five kinds of servers, each in a namespace of its own.

On Valkey and on the sets that fail over a few files run always (`ON_ALL`), the others in the long
suite. On the sets and on the Cluster of one node the store is a user with the least rights; the
test itself looks as another.
"""

import gc
import secrets
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from duebridge.store.server.connection import Connection, open_connection
from duebridge.store.server.embedded import stop_embedded
from tests.support.certificates import no_secret_is_logged  # noqa: F401
from tests.support.desk import Desk
from tests.support.redis.least import LeastConnection
from tests.support.redis.redis_sets import redis_cluster_of_six, sentinel_set
from tests.support.servers import redis_cluster

Opened = Callable[..., Desk]
SETS = ("sentinel", "six")
NO_FAILOVER_MS = 60_000  # a master that a busy machine keeps waiting is not to be replaced
ON_ALL = ("test_reclaim.py", "test_settling.py", "test_wake.py")


@contextmanager
def open_kind(
    kind: str, request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Connection]:
    if kind == "redis":
        yield open_connection(request.getfixturevalue("redis_url"))
    elif kind == "valkey":
        home = tmp_path_factory.mktemp("valkey")
        yield open_connection(f"embedded:{home}")
        stop_embedded(home)
    elif kind == "sentinel":
        home = tmp_path_factory.mktemp("sentinel")
        with sentinel_set(home, down_after_ms=NO_FAILOVER_MS) as servers:
            yield LeastConnection(servers.url)
    else:
        started = {"cluster": redis_cluster, "six": url_of_six}[kind]
        with started(tmp_path_factory.mktemp(kind)) as url:
            yield LeastConnection(url)
            leave_old_nodes_to_the_collector()


@contextmanager
def url_of_six(home: Path) -> Iterator[str]:
    with redis_cluster_of_six(home, node_timeout_ms=NO_FAILOVER_MS) as cluster:
        yield cluster.url


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        kind = getattr(item, "callspec", None) and item.callspec.params.get("connection")
        if kind in ("valkey", *SETS) and item.path.name not in ON_ALL:
            item.add_marker(pytest.mark.long)


def leave_old_nodes_to_the_collector() -> None:
    """redis-py's cluster client drops sockets of nodes that it replaced without closing them."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        gc.collect()


@pytest.fixture(scope="session", params=["redis", "valkey", "cluster", *SETS])
def connection(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Connection]:
    """A connection to each kind of server in turn."""
    with open_kind(request.param, request, tmp_path_factory) as opened:
        opened.load_scripts()
        yield opened
        if isinstance(opened, LeastConnection):
            opened.check_nothing_refused()
        opened.close()


@pytest.fixture(scope="session")
def valkey(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Connection]:
    """A server that the test may misconfigure."""
    home = tmp_path_factory.mktemp("spoilt")
    opened = open_connection(f"embedded:{home}")
    yield opened
    opened.close()
    stop_embedded(home)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Connection]:
    """A server of the test's own."""
    connection = open_connection(f"embedded:{tmp_path}")
    yield connection
    connection.close()
    stop_embedded(tmp_path)


@pytest.fixture
def open_at() -> Iterator[Callable[..., Connection]]:
    """Open connections that are closed at the end of the test."""
    opened: list[Connection] = []

    def make(*where: Any, **options: Any) -> Connection:
        opened.append(open_connection(*where, **options))
        return opened[-1]

    yield make
    for each in opened:
        each.close()


@pytest.fixture
def open_desk(connection: Connection) -> Iterator[Opened]:
    """Make desks, each on a fresh shard, which is checked and deleted at the end."""
    opened: list[Desk] = []

    def make(on: Connection = connection, **options: Any) -> Desk:
        opened.append(Desk(on, f"test-{secrets.token_hex(6)}", **options))
        return opened[-1]

    yield make
    for desk in opened:
        if desk.is_whole:
            desk.check()
        desk.delete()


@pytest.fixture
def desk(open_desk: Opened) -> Desk:
    return open_desk()
