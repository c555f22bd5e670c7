"""Who makes the calls of a thread: the name that the journal has, and whether anybody still waits.

What nobody waits for is not sent, nor sent again: it would come behind newer calls of its caller.
"""

import asyncio
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Executor
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TypeVar

from duebridge.errors import StoreUnavailable

Answer = TypeVar("Answer")
Item = TypeVar("Item")

MOST_ACTOR = 64  # characters of a name

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


async def run_while_awaited(threads: Executor, call: Callable[[], Answer]) -> Answer:
    """Run a call in a thread; raises as it does.

    Where the task is cancelled, what was sent goes on to its end, and nothing is sent after it.
    """
    left = threading.Event()

    def run() -> Answer:
        with abandoned_if(left.is_set):
            return call()

    try:
        return await asyncio.get_running_loop().run_in_executor(threads, run)
    except asyncio.CancelledError:
        left.set()
        raise
