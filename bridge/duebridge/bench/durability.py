"""`durability`: the cost of answers that survive more, on servers of its own on this machine.

Every server has an append-only file and a replica, so that one thing differs: fsync at each write,
or a wait for replicas. With `replicated 2` there is a second replica.
"""

import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from duebridge.bench.figures import BenchRow, medians, percentile
from duebridge.bench.stage import MAX_DELAY_MS, bodies
from duebridge.config.durability import ReplicaWait
from duebridge.envelope import Envelope
from duebridge.errors import StoreError
from duebridge.store.batching import CALL_ROWS, PROMOTE_ROWS, SCHEDULE_ROWS
from duebridge.store.delay_store import DelayStore
from duebridge.store.keys import Shard
from duebridge.store.life import RouteLife
from duebridge.store.registry import Registry
from duebridge.store.server.connection import open_connection
from duebridge.store.server.embedded import server_program
from duebridge.store.wire.transitions import Ack

BASE = "async"
LEASE_MS = 60_000
READY_WITHIN_S = 30.0
CONFIRMED_WITHIN_S = 30.0  # a stall is measured; a configuration may ask for less alone
STARTS = 3
WARM_UP = 1000
_SETTINGS = ("--save", "", "--appendonly", "yes", "--repl-diskless-sync-delay", "0")
T = TypeVar("T")


class _Side(NamedTuple):
    """A durability, and a shard of a server that is set up for it."""

    name: str
    store: DelayStore


class _Times(NamedTuple):
    """The seconds of the calls that accepted envelopes, and of those that delivered them."""

    accepting: list[float]
    claiming: list[float]
    delivering: list[float]

    def figures(self, count: int, base: "_Times") -> Iterator[tuple[str, dict[str, float]]]:
        """Yield each operation, with its figures relative to the base of the same round."""
        yield "schedule", _figures(count, self.accepting, self.accepting, base.accepting)
        yield "deliver", _figures(count, self.delivering, self.claiming, base.delivering)


def measure_durability(count: int, rounds: int) -> Iterator[BenchRow]:
    """Yield, by durability, the throughput and latency of schedule, and of promote, claim and ack.

    `throughput_ratio` is beside `async` in the same round; the broker's part is not in it. Raises
    `StoreUnfit` where no server program is installed.
    """
    rows: list[BenchRow] = []
    with ExitStack() as stack:
        sides = _sides(stack)
        for side in sides:
            _live(side.store, WARM_UP)
        for number in range(1, rounds + 1):
            times = {side.name: _live(side.store, count) for side in sides}
            for name, found in times.items():
                for what, figures in found.figures(count, times[BASE]):
                    rows.append(BenchRow("durability", f"{what}, {name}", figures, round=number))
                    yield rows[-1]
    yield from medians(rows)


def _sides(stack: ExitStack) -> Sequence[_Side]:
    loose = stack.enter_context(_primary("everysec", 1))
    return (
        _side(BASE, loose, stack),
        _side("fsync", stack.enter_context(_primary("always", 1)), stack),
        _side("replicated 1", loose, stack, 1),
        _side("replicated 2", stack.enter_context(_primary("everysec", 2)), stack, 2),
    )


def _side(name: str, url: str, stack: ExitStack, replicas: int = 0) -> _Side:
    connection = open_connection(url, 2 * CONFIRMED_WITHIN_S)
    stack.callback(connection.close)
    connection.load_scripts()
    timeout_ms = round(1000 * CONFIRMED_WITHIN_S)
    patient = ReplicaWait.model_construct(replicas=replicas, timeout=timeout_ms)
    waits_for = patient if replicas else None
    life = RouteLife(Registry(connection, "bench"), "r", 1, registers=True)
    store = DelayStore(connection, Shard("bench", "r", 0), waits_for=waits_for, life=life)
    return _Side(name, store)


@contextmanager
def _primary(appendfsync: str, replicas: int) -> Iterator[str]:
    """Run a primary with replicas that follow it; give its URL."""
    with ExitStack() as stack:
        home = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="duebridge-bench-")))
        port = _start(stack, home / "primary", "--appendfsync", appendfsync)
        for number in range(replicas):
            _start(stack, home / f"replica{number}", "--replicaof", f"127.0.0.1 {port}")
        url = f"redis://127.0.0.1:{port}"
        _await_replicas(url, replicas)
        yield url


def _start(stack: ExitStack, home: Path, *options: str) -> int:
    """Start a server; on another port where somebody else took the first one meanwhile."""
    home.mkdir()
    quiet = subprocess.DEVNULL
    for _ in range(STARTS):
        port = _free_port()
        words = [server_program(), "--port", str(port), "--bind", "127.0.0.1", "--dir", str(home)]
        words += [*_SETTINGS, *options]
        server = subprocess.Popen(words, stdout=quiet, stderr=quiet)  # noqa: S603
        stack.callback(server.wait)
        stack.callback(server.kill)
        if _answers(server, port):
            return port
    raise StoreError("bench: a server ended as soon as it started")


def _free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


def _answers(server: "subprocess.Popen[bytes]", port: int) -> bool:
    """Whether it is this server that answers there, before it ends or the time is over."""
    give_up_at = time.monotonic() + READY_WITHIN_S
    pid = b"process_id:%d\r\n" % server.pid
    while server.poll() is None and time.monotonic() < give_up_at:
        with suppress(OSError), socket.create_connection(("127.0.0.1", port), 1.0) as asked:
            asked.sendall(b"INFO server\r\n")
            if pid in asked.recv(65536):
                return True
        time.sleep(0.01)
    return False


def _await_replicas(url: str, replicas: int) -> None:
    connection = open_connection(url)
    client: Any = connection.client
    give_up_at = time.monotonic() + READY_WITHIN_S
    with ExitStack() as stack:
        stack.callback(connection.close)
        while not _is_followed(client, replicas):
            if time.monotonic() > give_up_at:
                raise StoreError(f"bench: a server had no replicas within {READY_WITHIN_S:g} s")
            time.sleep(0.05)


def _is_followed(client: Any, replicas: int) -> bool:
    try:
        with client.pipeline(transaction=False) as pipe:
            pipe.set("followed", 1)
            pipe.wait(replicas, 1000)
            return bool(pipe.execute()[-1] >= replicas)
    except Exception:  # the client's: it does not listen yet
        return False


def _live(store: DelayStore, count: int) -> _Times:
    """Let `count` envelopes be accepted and delivered, call by call."""
    times = _Times([], [], [])
    now_ms = store.next().now_ms
    for first in range(0, count, SCHEDULE_ROWS):
        some = bodies(min(SCHEDULE_ROWS, count - first))
        envelopes = [Envelope.new(body, at=now_ms) for body in some]
        schedule = partial(store.schedule, envelopes, max_delay_ms=MAX_DELAY_MS)
        _timed(schedule, times.accepting)
    left = count
    while left:
        _timed(partial(store.promote, PROMOTE_ROWS), times.delivering)
        claim = _timed(partial(store.claim, CALL_ROWS, LEASE_MS), times.claiming)
        times.delivering.append(times.claiming[-1])
        _timed(partial(store.ack, [Ack(each, claim.token) for each in claim.ids]), times.delivering)
        left -= claim.held
    return times


def _timed(call: Callable[[], T], into: list[float]) -> T:
    began = time.perf_counter()
    found = call()
    into.append(time.perf_counter() - began)
    return found


def _figures(
    count: int, spent: list[float], calls: list[float], base: list[float]
) -> dict[str, float]:
    ordered = sorted(1000 * each for each in calls)
    return {
        "messages_per_s": count / sum(spent),
        "p50_ms": percentile(ordered, 0.5),
        "p99_ms": percentile(ordered, 0.99),
        "throughput_ratio": sum(base) / sum(spent),
    }
