"""A call that an exception of a signal handler ends: the next one gets its own answer."""

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from hashlib import sha1
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from duebridge.config.durability import ReplicaWait
from duebridge.store.server.connection import Connection
from duebridge.store.server.redis_client import SafePool
from duebridge.store.server.scripts import Script, script
from tests.support.network.proxy import Proxy, proxied
from tests.support.redis.redis_node import server

PATIENCE_S = 20.0
MANY = 120  # more than a pool has connections
SOURCE = "#!lua\nreturn ARGV[1]"


class Interrupted(BaseException):
    """What a signal handler raises."""


@pytest.fixture(scope="module")
def port(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    node = server(Path(tmp_path_factory.mktemp("interrupted")))
    node.start()
    yield node.port
    node.kill()


@pytest.fixture
def proxy(port: int) -> Iterator[Proxy]:
    with proxied(port) as opened:
        yield opened


def echo() -> Script:
    digest = sha1(SOURCE.encode(), usedforsecurity=False).hexdigest()
    return script("next")._replace(source=SOURCE, sha=digest)


def interrupted(call: Callable[[], object], function: str, event: str) -> None:
    """Run a call, and raise where it enters or leaves a function, as a signal handler may."""

    def trace(frame: FrameType, what: str, _: Any) -> Any:
        if frame.f_code.co_name == function and what == event:
            sys.settrace(None)
            raise Interrupted
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        with pytest.raises(Interrupted):
            call()
    finally:
        sys.settrace(before)


def ask(connection: Connection, word: str, wanted: ReplicaWait | None = None) -> bytes:
    answer: bytes = connection.run(echo(), ["k"], [word], wanted=wanted).value
    return answer


WAITS = [None, ReplicaWait.model_construct(replicas=0, timeout=100)]


@pytest.mark.parametrize("wanted", WAITS)
def test_call_after_an_interrupted_one_reads_its_own_answer(
    open_at: Callable[..., Connection], proxy: Proxy, wanted: ReplicaWait | None
) -> None:
    connection = open_at(f"redis://127.0.0.1:{proxy.port}", PATIENCE_S)
    assert ask(connection, "first", wanted) == b"first"
    proxy.hold()
    interrupted(lambda: ask(connection, "interrupted", wanted), "send_packed_command", "return")
    later = threading.Timer(0.2, proxy.release)
    later.start()
    assert ask(connection, "next", wanted) == b"next"
    later.join()


PLACES = [("get_connection", "return"), ("release", "call"), ("send_packed_command", "return")]


@pytest.mark.parametrize("wanted", WAITS)
@pytest.mark.parametrize(("function", "event"), PLACES)
def test_interrupted_calls_use_no_connection_up(
    open_at: Callable[..., Connection],
    port: int,
    function: str,
    event: str,
    wanted: ReplicaWait | None,
) -> None:
    connection = open_at(f"redis://127.0.0.1:{port}", PATIENCE_S)
    for _ in range(MANY):
        interrupted(lambda: ask(connection, "interrupted", wanted), function, event)
    assert ask(connection, "next", wanted) == b"next"


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
