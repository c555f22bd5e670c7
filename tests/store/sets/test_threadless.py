"""No thread can start for a while: a failover that comes later is followed, and hints are heard."""

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from duebridge.errors import StoreUnavailable
from duebridge.store import wakeup
from duebridge.store.delay_store import DelayStore
from duebridge.store.server.connection import Connection
from duebridge.store.server.sets import sentinel
from duebridge.store.wakeup import WakeListener
from tests.support.desk import DAY_MS, answers, envelope, shard_of
from tests.support.redis.redis_node import RedisNode, server
from tests.support.redis.redis_sets import sentinel_set
from tests.support.servers import of_a_cluster, take_every_slot, wait_until

OpenAt = Callable[..., Connection]
ERRORS = [RuntimeError("can't start new thread"), MemoryError()]
BY_ERROR = pytest.mark.parametrize(
    "error",
    [ERRORS[0], pytest.param(ERRORS[1], marks=pytest.mark.long)],
    ids=lambda each: type(each).__name__,
)
TIMES = 3
TIMEOUT_S = 1.0
WITHIN_S = 30.0
ASK_EVERY_S = 0.2


class Faults:
    """What is raised in the place of a call, while `are_on`; `count` says how often it was."""

    def __init__(self) -> None:
        self.are_on = False
        self.count = 0

    def await_more(self) -> None:
        """Return once it was raised a few times from now on."""
        until = self.count + TIMES
        wait_until(lambda: self.count >= until, "the fault")


@pytest.fixture
def no_threads(monkeypatch: pytest.MonkeyPatch, error: Exception) -> Faults:
    """Threads of the store's client, which do not start while the faults are on."""
    faults, start = Faults(), threading.Thread.start

    def starting(thread: Any) -> None:
        if faults.are_on and thread._target.__module__.startswith("duebridge.store.server"):
            faults.count += 1
            raise error
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", starting)
    return faults


# ── a Sentinel set ──────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def asked_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sentinel, "ASK_EVERY_S", ASK_EVERY_S)


@BY_ERROR
@pytest.mark.usefixtures("asked_often")
def test_failover_of_a_sentinel_set_is_followed_after_no_thread_could_start(
    tmp_path: Path, open_at: OpenAt, no_threads: Faults
) -> None:
    with sentinel_set(tmp_path, replicas=1) as servers:
        store = shard_of(open_at(servers.url, TIMEOUT_S))
        no_threads.are_on = True
        with pytest.raises(StoreUnavailable, match="no Sentinel named a master"):
            store.next()
        no_threads.are_on = False
        wait_until(lambda: answers(store), "the master")
        no_threads.are_on = True
        no_threads.await_more()
        no_threads.are_on = False
        servers.kill_master()
        wait_until(lambda: answers(store), "the new master")


@BY_ERROR
@pytest.mark.usefixtures("asked_often")
def test_sentinels_are_asked_on_after_asking_raised(
    tmp_path: Path, open_at: OpenAt, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    faults, queue = Faults(), sentinel.SimpleQueue

    def queued() -> Any:
        faults.count += 1
        if faults.are_on:
            raise error
        return queue()

    monkeypatch.setattr(sentinel, "SimpleQueue", queued)
    with sentinel_set(tmp_path, replicas=0) as servers, capture_logs() as logs:
        store = shard_of(open_at(servers.url))
        wait_until(lambda: answers(store), "the master")
        faults.are_on = True
        faults.await_more()
        faults.are_on = False
        faults.await_more()
    said = [each["log_level"] for each in logs if each["event"] == "sentinels_not_asked"]
    assert said[0] == "error"
    assert set(said[1:]) == {"debug"}


# ── a Cluster ───────────────────────────────────────────────────────────────────────────────────


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisNode]:
    """A Cluster of one node, which a test may freeze, and lets go on."""
    node = server(tmp_path_factory.mktemp("node"), *of_a_cluster())
    node.start()
    try:
        take_every_slot(node.port)
        yield node
    finally:
        node.kill()


@BY_ERROR
def test_silent_node_is_asked_again_after_no_thread_could_start(
    node: RedisNode, open_at: OpenAt, no_threads: Faults
) -> None:
    store = shard_of(open_at(f"redis+cluster://127.0.0.1:{node.port}", TIMEOUT_S, WITHIN_S))
    wait_until(lambda: answers(store), "the node")
    no_threads.are_on = True
    node.freeze()
    try:
        with pytest.raises(StoreUnavailable):
            store.next()
        assert no_threads.count
    finally:
        node.resume()
    no_threads.are_on = False
    wait_until(lambda: answers(store), "the node to be asked")


def await_hint(store: DelayStore, heard: threading.Event) -> None:
    minutes = iter(range(10_000, 0, -1))  # each is sooner than all before: only that is a hint
    heard.clear()

    def is_heard() -> bool:
        sooner = envelope(f"{next(minutes)}", f"{next(minutes)}m")
        store.schedule([sooner], max_delay_ms=9 * DAY_MS, mode="replace")
        return heard.wait(0.1)

    wait_until(is_heard, "a hint")
    for each in store.list("pending", limit=1000).entries:
        store.cancel(each.id)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
@pytest.mark.parametrize(
    ("method", "error"),
    [("renew_map", ERRORS[0]), ("renew_map", ERRORS[1]), ("server_of", SystemExit())],
    ids=["RuntimeError", "MemoryError", "the thread ends"],
)
def test_hints_of_a_cluster_are_heard_again_after_the_listener_raised(
    node: RedisNode,
    open_at: OpenAt,
    monkeypatch: pytest.MonkeyPatch,
    method: str,
    error: BaseException,
) -> None:
    monkeypatch.setattr(wakeup, "POLL_S", 0.05)
    monkeypatch.setattr(wakeup, "PAUSE_S", 0.01)
    connection = open_at(f"redis+cluster://127.0.0.1:{node.port}")
    store, faults, real = shard_of(connection), Faults(), getattr(connection, method)

    def raising(*given: Any) -> Any:
        if faults.are_on and faults.count < TIMES:
            faults.count += 1
            raise error
        return real(*given)

    monkeypatch.setattr(connection, method, raising)
    heard = threading.Event()
    listener = WakeListener(connection, {store.shard: heard.set})
    listener.start()
    try:
        await_hint(store, heard)
        faults.are_on = True
        node.ask("CLIENT", "KILL", "TYPE", "pubsub")
        wait_until(lambda: faults.count > 0, "the fault")
        await_hint(store, heard)
    finally:
        listener.close()
