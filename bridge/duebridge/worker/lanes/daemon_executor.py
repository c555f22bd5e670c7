"""An executor whose threads start at once and never keep a process alive.

A `ThreadPoolExecutor` starts threads when they are needed, which fails when none are to be had, and
joins them at exit, which a broker that does not answer could delay without bound.
"""

import threading
from collections.abc import Callable
from concurrent.futures import Executor, Future
from queue import SimpleQueue
from typing import Any

import structlog

log = structlog.get_logger()

Task = tuple["Future[Any]", Callable[..., Any], tuple[Any, ...], dict[str, Any]]


class DaemonExecutor(Executor):
    """Runs calls in daemon threads; raises `RuntimeError` if they cannot be started."""

    def __init__(self, threads: int, name: str) -> None:
        self._tasks: SimpleQueue[Task | None] = SimpleQueue()
        self._lock = threading.Lock()
        self._is_ended = False
        self._threads = [
            threading.Thread(target=self._run, name=f"{name}-{number}", daemon=True)
            for number in range(threads)
        ]
        for thread in self._threads:
            thread.start()

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> "Future[Any]":
        """Queue a call; its future can be cancelled until a thread begins it.

        Raises `RuntimeError` after `shutdown`.
        """
        future: Future[Any] = Future()
        with self._lock:
            if self._is_ended:
                raise RuntimeError("the threads have ended")
            self._tasks.put((future, fn, args, kwargs))
        return future

    @property
    def waiting(self) -> int:
        """The number of calls that wait for a thread."""
        return self._tasks.qsize()

    def shutdown(self, wait: bool = False, *, cancel_futures: bool = False) -> None:
        """End the threads after what is queued; never waits."""
        del wait, cancel_futures
        with self._lock:
            self._is_ended = True
            for _ in self._threads:
                self._tasks.put(None)

    def _run(self) -> None:
        while (task := self._tasks.get()) is not None:
            future, fn, args, kwargs = task
            if future.set_running_or_notify_cancel():
                try:
                    future.set_result(fn(*args, **kwargs))
                except BaseException as error:  # nobody may ever ask the future
                    future.set_exception(error)
                    log.exception("thread_failed")
