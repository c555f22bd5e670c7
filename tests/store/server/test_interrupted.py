"""A call that a signal handler's exception or a time-out ends: the next gets its own answer."""

import os
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from hashlib import sha1
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
import redis

from duebridge.config.durability import ReplicaWait
from duebridge.errors import StoreUnavailable
from duebridge.store.server.connection import Connection
from duebridge.store.server.redis_client import SafePool
from duebridge.store.server.scripts import Script, script
from tests.support.network.proxy import Proxy, proxied
from tests.support.redis.redis_node import server
from tests.support.servers import redis_cluster, wait_until

PATIENCE_S = 20.0
TIMEOUT_S = 1.0  # of a connection whose server is silent
MANY = 120  # more than a pool has connections
SOURCE = "#!lua\nreturn ARGV[1]"


class Interrupted(BaseException):
    """What a signal handler raises, as that of Ctrl-C."""


class TimeLimitExceeded(Exception):
    """What a signal handler raises, as that of a task queue's time limit."""


KINDS = [Interrupted, TimeLimitExceeded]
Raised = type[BaseException]


@pytest.fixture(scope="module")
def port(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    node = server(Path(tmp_path_factory.mktemp("interrupted")))
    node.start()
    yield node.port
    node.kill()


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with redis_cluster(tmp_path_factory.mktemp("cluster")) as url:
        yield url


@pytest.fixture(params=["server", "cluster"])
def url(request: pytest.FixtureRequest, port: int) -> str:
    """The URL of one server, and of a Cluster."""
    is_cluster = request.param == "cluster"
    return str(request.getfixturevalue("cluster")) if is_cluster else f"redis://127.0.0.1:{port}"


@pytest.fixture
def proxy(url: str) -> Iterator[Proxy]:
    """A proxy to which a Cluster's node sends its clients."""
    port = int(url.rpartition(":")[2])
    with proxied(port) as opened, redis.Redis(port=port) as node:
        node.config_set("cluster-announce-port", opened.port)
        yield opened
        node.config_set("cluster-announce-port", 0)


@pytest.fixture
def proxied_url(url: str, proxy: Proxy) -> str:
    return f"{url.rpartition(':')[0]}:{proxy.port}"


def echo() -> Script:
    digest = sha1(SOURCE.encode(), usedforsecurity=False).hexdigest()
    return script("next")._replace(source=SOURCE, sha=digest)


def interrupted(call: Callable[[], object], function: str, event: str, kind: Raised) -> None:
    """Run a call, and raise where it enters or leaves a function, as a signal handler may."""

    def trace(frame: FrameType, what: str, _: Any) -> Any:
        if frame.f_code.co_name == function and what == event:
            sys.settrace(None)
            raise kind
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        with pytest.raises(kind):
            call()
    finally:
        sys.settrace(before)


def ask(
    connection: Connection,
    word: str,
    wanted: ReplicaWait | None = None,
    repeat_for_s: float = 0.0,
) -> bytes:
    answer: bytes = connection.run(echo(), ["k"], [word], repeat_for_s, wanted).value
    return answer


def ask_server(connection: Connection, word: str, _: ReplicaWait | None = None) -> bytes:
    """Ask as those do who need several answers of one server."""
    answer: bytes = connection.server_of("k").echo(word)
    return answer


WAITS = [None, ReplicaWait.model_construct(replicas=0, timeout=100)]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("asked", "wanted"), [(ask, WAITS[0]), (ask, WAITS[1]), (ask_server, None)]
)
def test_call_after_an_interrupted_one_reads_its_own_answer(
    open_at: Callable[..., Connection],
    proxy: Proxy,
    proxied_url: str,
    asked: Callable[..., bytes],
    wanted: ReplicaWait | None,
    kind: Raised,
) -> None:
    connection = open_at(proxied_url, PATIENCE_S)
    assert ask(connection, "first", wanted) == b"first"
    proxy.hold()
    call = lambda: asked(connection, "interrupted", wanted)  # noqa: E731
    interrupted(call, "send_packed_command", "return", kind)
    later = threading.Timer(0.2, proxy.release)
    later.start()
    assert ask(connection, "next", wanted) == b"next"
    later.join()


@pytest.mark.parametrize("kind", KINDS)
def test_call_after_one_that_was_interrupted_amid_its_replies_reads_its_own_answer(
    open_at: Callable[..., Connection], url: str, kind: Raised
) -> None:
    connection = open_at(url, PATIENCE_S)
    assert ask(connection, "first") == b"first"
    wanted = ReplicaWait.model_construct(replicas=1, timeout=300)  # its reply comes so much later
    call = lambda: ask(connection, "interrupted", wanted)  # noqa: E731
    interrupted(call, "parse_response", "return", kind)
    assert ask(connection, "next") == b"next"


PLACES = [("get_connection", "return"), ("release", "call"), ("send_packed_command", "return")]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("wanted", WAITS)
@pytest.mark.parametrize(("function", "event"), PLACES)
def test_interrupted_calls_use_no_connection_up(
    open_at: Callable[..., Connection],
    url: str,
    function: str,
    event: str,
    wanted: ReplicaWait | None,
    kind: Raised,
) -> None:
    connection = open_at(url, PATIENCE_S)
    for _ in range(MANY):
        interrupted(lambda: ask(connection, "interrupted", wanted), function, event, kind)
    assert ask(connection, "next", wanted) == b"next"


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("function", ["greet_master", "on_connect", "role_of"])
def test_connection_whose_greeting_was_interrupted_is_not_used(
    open_at: Callable[..., Connection], port: int, function: str, kind: Raised
) -> None:
    connection = open_at(f"redis://127.0.0.1:{port}/3", PATIENCE_S)
    interrupted(lambda: ask(connection, "interrupted"), function, "call", kind)
    client: Any = connection.client
    assert client.client_info()["db"] == 3


@pytest.mark.parametrize("kind", KINDS)
def test_interrupted_call_leaves_a_subscription_of_its_thread_alone(
    open_at: Callable[..., Connection], url: str, kind: Raised
) -> None:
    connection = open_at(url, PATIENCE_S)
    assert ask(connection, "first") == b"first"
    server: Any = connection.server_of("k")
    with closing(server.pubsub(ignore_subscribe_messages=True)) as subscription:
        subscription.subscribe("channel")
        subscription.get_message(timeout=PATIENCE_S)
        call = lambda: ask(connection, "interrupted")  # noqa: E731
        interrupted(call, "send_packed_command", "return", kind)
        assert ask(connection, "next") == b"next"
        server.publish("channel", "hint")
        message = subscription.get_message(timeout=PATIENCE_S)
        assert message is not None
        assert message["data"] == b"hint"


def test_connection_is_reset_only_while_a_reply_is_outstanding(
    open_at: Callable[..., Connection], proxy: Proxy, proxied_url: str
) -> None:
    connection = open_at(proxied_url, TIMEOUT_S, PATIENCE_S)
    assert ask(connection, "first", repeat_for_s=PATIENCE_S) == b"first"
    ends = len(proxy.ends)
    connection.client.close()
    wait_until(lambda: set(proxy.ends[ends:]) == {"closed"}, proxy.ends)
    assert ask(connection, "again", repeat_for_s=PATIENCE_S) == b"again"
    resets = proxy.ends.count("reset")
    proxy.hold()
    with pytest.raises(StoreUnavailable):
        ask(connection, "late")  # a kernel that kept it would send it again after a partition
    wait_until(lambda: proxy.ends.count("reset") > resets, proxy.ends)


def test_child_of_a_fork_that_closes_a_connection_leaves_it_to_its_parent(port: int) -> None:
    with closing(SafePool(port=port)) as pool:
        connection: Any = pool.get_connection()
        connection.send_command("PING")
        if (child := os.fork()) == 0:
            connection.disconnect()
            os._exit(0)
        os.waitpid(child, 0)
        assert connection.read_response() == b"PONG"
        connection.send_command("PING")
        assert connection.read_response() == b"PONG"


def refused(server: Any) -> None:
    with pytest.raises(redis.exceptions.ResponseError):
        server.execute_command("NO SUCH COMMAND")


def never_sent(server: Any) -> None:
    with pytest.raises(redis.exceptions.DataError):
        server.execute_command("ECHO", object())


def piped(server: Any) -> None:
    with server.pipeline(transaction=False) as pipe:
        pipe.echo("some").execute_command("NO SUCH COMMAND").echo("more")
        some, error, more = pipe.execute(raise_on_error=False)
        assert isinstance(error, redis.exceptions.ResponseError)
        assert (some, more) == (b"some", b"more")


def transacted(server: Any) -> None:
    with server.pipeline(transaction=True) as pipe:
        pipe.execute_command("NO SUCH COMMAND").echo("more")
        with pytest.raises(redis.exceptions.ResponseError):
            pipe.execute()


@pytest.mark.parametrize("call", [refused, never_sent, piped, transacted])
def test_call_that_was_answered_keeps_its_connection(
    open_at: Callable[..., Connection], url: str, call: Callable[[Any], None]
) -> None:
    server: Any = open_at(url, PATIENCE_S).server_of("k")
    before = server.client_id()
    call(server)
    assert server.client_id() == before


class HurriedPool(SafePool):
    """Lends a connection the moment that the pid lets other threads of a forked child go on."""

    is_hurried = False

    @property
    def pid(self) -> int:
        return self._pid

    @pid.setter
    def pid(self, pid: int) -> None:
        self._pid = pid
        if self.is_hurried:
            self.lent = self.get_connection()


def test_pool_that_begins_anew_loses_no_connection_of_another_thread(port: int) -> None:
    with closing(HurriedPool(port=port)) as pool:
        pool.is_hurried = True
        pool.reset()
        pool.release(pool.lent)
        assert pool.get_connection() is pool.lent
