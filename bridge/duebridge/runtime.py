"""Python's runtime: settings for processes that duebridge owns, their sockets, and threads.

The settings hold for all of a process.
"""

import gc
import socket
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from threading import Event, Thread
from typing import TypeVar

# Python's default of 700 allocations runs it every few messages or requests, and finds no garbage.
THRESHOLDS = (50_000, 20, 50)
SWITCH_S = 0.0005
EVERY_ADDRESS = "::"  # of IPv4 too
BACKLOG = 1024

T = TypeVar("T")


def listening(host: str, port: int) -> socket.socket:
    """Return a socket that listens; at `EVERY_ADDRESS` it hears IPv6 and IPv4.

    A machine without IPv6 hears IPv4 there. Raises `OSError`.
    """
    if host == EVERY_ADDRESS and not socket.has_dualstack_ipv6():
        host = "0.0.0.0"  # noqa: S104 - as asked
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    both = host == EVERY_ADDRESS
    return socket.create_server((host, port), family=family, backlog=BACKLOG, dualstack_ipv6=both)


@contextmanager
def tuned_gc() -> Iterator[None]:
    """Run the cyclic garbage collector less often; reference counting is unaffected."""
    before = gc.get_threshold()
    gc.set_threshold(*THRESHOLDS)
    try:
        yield
    finally:
        gc.set_threshold(*before)


@contextmanager
def short_turns() -> Iterator[None]:
    """Have a thread that computes let others go on after half a millisecond.

    An intake reads one batch while another thread stores the one before, two milliseconds a call.
    With Python's five that thread waits longer for its turn than for the store.
    """
    before = sys.getswitchinterval()
    sys.setswitchinterval(min(before, SWITCH_S))
    try:
        yield
    finally:
        sys.setswitchinterval(before)


def left_s(until: float) -> float:
    """Return the seconds until an instant of the monotonic clock, 0 once it has passed."""
    return max(0.0, until - time.monotonic())


def join_all(threads: Iterable[Thread], until: float) -> bool:
    """Wait for threads until an instant of the monotonic clock; return whether all have ended."""
    waited = list(threads)
    for thread in waited:
        thread.join(left_s(until))
    return not any(thread.is_alive() for thread in waited)


class PeriodicTask(ABC):
    """Work that a thread of its own repeats, so that a slow answer of the store delays no other."""

    def __init__(self, name: str, first_s: float = 0.0) -> None:
        """Name the thread; the first step comes `first_s` after the start."""
        self._first_s = first_s
        self._closed = Event()
        self._thread = Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def close(self) -> None:
        """End the thread before its next step; does not wait."""
        self._closed.set()

    @abstractmethod
    def step(self) -> float:
        """Do the work once; return the seconds until the next time."""

    def _run(self) -> None:
        pause_s = self._first_s
        while not self._closed.wait(pause_s):
            pause_s = self.step()


def in_background(call: Callable[[], T], name: str) -> "Future[T]":
    """Start a call on a new thread, which does not keep the process alive; return its outcome."""
    outcome: Future[T] = Future()

    def run() -> None:
        try:
            outcome.set_result(call())
        except BaseException as error:
            outcome.set_exception(error)

    Thread(target=run, name=name, daemon=True).start()
    return outcome
