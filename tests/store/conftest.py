"""Tests of the delay store run on up to five kinds of servers, each in a namespace of its own.

Every test runs on a Cluster of one node, which also refuses keys of two slots, and in the long
suite on Valkey, which is another engine. A script sees one shard, so one node: Redis, a Sentinel
set and a Cluster of six have the tests of `ON_ALL`, and in the long suite those of `OF_CLIENTS`,
on Redis these too always. On the sets and on the Cluster of one node the store is a user with the
least rights; the test itself looks as another.
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
ON_ALL = ("test_wake.py",)  # which listens, as each client does in its own way
OF_CLIENTS = (  # what the clients do differently, or with the nodes of several shards
    "test_clock.py",
    "test_connection.py",
    "test_epoch.py",
    "test_event_reader.py",
    "test_positions.py",
    "test_renew.py",
    "test_server.py",
    "test_state_machine.py",
    "test_watch.py",
    "test_workers.py",
)


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
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    spared = {item for item in items if kind_of(item) in ("redis", *SETS) and not needs_all(item)}
    config.hook.pytest_deselected(items=list(spared))
    items[:] = [item for item in items if item not in spared]
    for item in items:
        if kind_of(item) in ("valkey", *SETS) and item.path.name not in ON_ALL:
            item.add_marker(pytest.mark.long)


def kind_of(item: pytest.Item) -> Any:
    is_here = Path(__file__).parent in item.path.parents
    callspec = getattr(item, "callspec", None)
    return callspec.params.get("connection") if is_here and callspec else None


def needs_all(item: pytest.Item) -> bool:
    names = [mark.args[0] for mark in item.iter_markers("parametrize")]
    return "connection" in names or item.path.name in (*ON_ALL, *OF_CLIENTS)


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
