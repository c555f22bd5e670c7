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
from contextlib import ExitStack, contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from duebridge.store.server import opening
from duebridge.store.server.connection import Connection, open_connection
from duebridge.store.server.embedded import stop_embedded
from tests.support.certificates import no_secret_is_logged  # noqa: F401
from tests.support.desk import Desk
from tests.support.redis.least import LeastConnection, admin_of
from tests.support.redis.redis_sets import redis_cluster_of_six, sentinel_set
from tests.support.servers import redis_cluster

Opened = Callable[..., Desk]
HERE = f"{Path(__file__).parent}/"
SETS = ("sentinel", "six")
PATIENCE_S = 60.0
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
    "test_workers.py",
)


@contextmanager
def servers_of(
    kind: str, service: Callable[[str, str], str], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[str]:
    """Run the servers of a kind; give their URL."""
    if kind == "redis":
        yield service("redis", "url")
    elif kind == "valkey":
        home = tmp_path_factory.mktemp("valkey")
        yield f"embedded:{home}"
        stop_embedded(home)
    elif kind == "sentinel":
        home = tmp_path_factory.mktemp("sentinel")
        with sentinel_set(home, down_after_ms=NO_FAILOVER_MS) as servers:
            yield servers.url
    else:
        started = {"cluster": redis_cluster, "six": url_of_six}[kind]
        with started(tmp_path_factory.mktemp(kind)) as url:
            yield url
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
    callspec = getattr(item, "callspec", None)
    kind = callspec.params.get("connection") if callspec else None
    return kind if kind and str(item.path).startswith(HERE) else None


def needs_all(item: pytest.Item) -> bool:
    names = [mark.args[0] for mark in item.iter_markers("parametrize")]
    return "connection" in names or item.path.name in (*ON_ALL, *OF_CLIENTS)


def leave_old_nodes_to_the_collector() -> None:
    """redis-py's cluster client drops sockets of nodes that it replaced without closing them."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        gc.collect()


class Kinds:
    """What runs of each kind, started once: a Cluster needs two seconds to be ok, a set longer."""

    def __init__(self, start: Callable[[str], str], stack: ExitStack) -> None:
        self._url_of, self._stack = cache(start), stack
        self.kept = cache(self._kept)

    def opened(self, kind: str) -> Connection:
        is_least = kind in ("cluster", *SETS)
        url = self._url_of(kind)
        connection = LeastConnection(url) if is_least else open_connection(url)
        connection.load_scripts()
        return connection

    def _kept(self, kind: str) -> Connection:
        """Return the connection for all tests, since the end of a Cluster's takes a collection."""
        connection = self.opened(kind)
        self._stack.callback(connection.close)
        return connection


@pytest.fixture(scope="session", autouse=True)
def patient_with_nodes() -> Iterator[None]:
    """Let no busy machine look like a Cluster's node that is away.

    Tests that freeze one open their connections with a timeout of their own.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(opening, "NODE_TIMEOUT_S", PATIENCE_S)
        yield


@pytest.fixture(scope="session")
def kinds(
    service: Callable[[str, str], str], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Kinds]:
    with ExitStack() as stack:

        def start(kind: str) -> str:
            return stack.enter_context(servers_of(kind, service, tmp_path_factory))

        yield Kinds(start, stack)


@pytest.fixture(scope="session", params=["redis", "valkey", "cluster", *SETS])
def connection(request: pytest.FixtureRequest, kinds: Kinds) -> Iterator[Connection]:
    """A connection to each kind of server in turn, for the tests of a file."""
    has_thread = request.param == "sentinel"  # one that asks on: other files look for threads
    opened = kinds.opened(request.param) if has_thread else kinds.kept(request.param)
    yield opened
    if isinstance(opened, LeastConnection):
        opened.check_nothing_refused()
    if has_thread:
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


def keys_of(connection: Connection, namespace: str) -> set[str]:
    found = admin_of(connection).scan_iter(match=f"{{{namespace}*", count=1000)
    return {key.decode() for key in found}


@pytest.fixture
def namespace(connection: Connection) -> Iterator[str]:
    """A fresh one, of which nothing is left at the end."""
    namespace = f"test-{secrets.token_hex(6)}"
    yield namespace
    for key in keys_of(connection, namespace):
        admin_of(connection).unlink(key)


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
