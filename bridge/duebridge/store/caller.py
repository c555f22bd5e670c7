"""Who makes the calls of a thread: the name that the journal has, and whether anybody still waits.

What nobody waits for is not sent, nor sent again: it would come behind newer calls of its caller.
"""

import asyncio
import threading
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import ContextVar
from functools import partial
from typing import TypeVar

from duebridge.errors import StoreUnavailable

Answer = TypeVar("Answer")
Item = TypeVar("Item")

MOST_ACTOR = 64  # characters of a name
MOST_NODES = 8  # that have all their threads at once

_actor: ContextVar[str | None] = ContextVar("actor", default=None)


@contextmanager
def use_actor(name: str) -> Iterator[None]:
    """Set the user whom the journal names for calls of this thread; empty for a program."""
    before = _actor.set(name)
    try:
        yield
    finally:
        _actor.reset(before)


def current_actor(default: str) -> str:
    """Return the user whom the journal names for calls of this thread, `default` if none is set."""
    actor = _actor.get()
    return default if actor is None else actor


def never() -> bool:
    """Return False, as for the calls of a program that waits for each."""
    return False


_is_abandoned: ContextVar[Callable[[], bool]] = ContextVar("is_abandoned", default=never)


def is_abandoned() -> bool:
    """Whether nobody waits any more for the call that this thread is in."""
    return _is_abandoned.get()()


@contextmanager
def abandoned_if(is_abandoned: Callable[[], bool]) -> Iterator[None]:
    """Ask `is_abandoned` whether anybody still waits for the calls in this context."""
    before = _is_abandoned.set(is_abandoned)
    try:
        yield
    finally:
        _is_abandoned.reset(before)


def check_awaited() -> None:
    """Raise `StoreUnavailable` where nobody waits for the call."""
    if is_abandoned():
        raise StoreUnavailable("nobody waits for the call any more")


def while_awaited(steps: Iterable[Item]) -> Iterator[Item]:
    """Yield the steps of a call; raises `StoreUnavailable` for a later one nobody waits for."""
    for number, step in enumerate(steps):
        if number:
            check_awaited()
        yield step


class NodeThreads:
    """Threads that call the store: calls that wait for one node hold up no call of another.

    Of each node `each` calls run at once, in the order in which they came; the further ones wait
    without a thread. The calls of one server, and those of several nodes, are of the node "".
    """

    def __init__(self, each: int, name: str) -> None:
        self._each = each
        self._pool = ThreadPoolExecutor(MOST_NODES * each, thread_name_prefix=name)
        self._lock = threading.Lock()
        self._left: dict[str, deque[Callable[[], None]]] = {}
        self._running: Counter[str] = Counter()

    def submit(self, call: Callable[[], Answer], node: str = "") -> "Future[Answer]":
        """Run a call once the node has a thread for it; return its outcome."""
        outcome: Future[Answer] = Future()
        with self._lock:
            self._left.setdefault(node, deque()).append(partial(_run, call, outcome))
            if self._running[node] < self._each:
                self._pool.submit(self._work, node)
                self._running[node] += 1
        return outcome

    def _work(self, node: str) -> None:
        while (run := self._next(node)) is not None:
            run()

    def _next(self, node: str) -> Callable[[], None] | None:
        with self._lock:
            if left := self._left.get(node):
                return left.popleft()
            self._left.pop(node, None)
            self._running[node] -= 1
            if not self._running[node]:
                del self._running[node]  # it may never come again
            return None

    def shutdown(self) -> None:
        """Wait for the calls that run, and for those that wait for them."""
        self._pool.shutdown()


def _run(call: Callable[[], Answer], outcome: "Future[Answer]") -> None:
    if outcome.set_running_or_notify_cancel():
        try:
            outcome.set_result(call())
        except BaseException as error:
            outcome.set_exception(error)
            del outcome  # else it and the error's frames would keep each other alive


async def run_while_awaited(
    threads: NodeThreads, call: Callable[[], Answer], node: str = ""
) -> Answer:
    """Run a call in a thread of the node; raises as it does.

    Where the task is cancelled, what was sent goes on to its end, and nothing is sent after it.
    """
    left = threading.Event()

    def run() -> Answer:
        with abandoned_if(left.is_set):
            return call()

    try:
        return await asyncio.wrap_future(threads.submit(run, node))
    except asyncio.CancelledError:
        left.set()
        raise
