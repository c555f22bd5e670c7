"""Runs a call on a thread of its own, so that the caller can do something else meanwhile."""

from collections.abc import Callable
from concurrent.futures import Future
from threading import Thread


def begin_aside(call: Callable[[], None], name: str) -> "Future[None]":
    """Start a call on a new thread, which does not keep the process alive; return its outcome."""
    outcome: Future[None] = Future()

    def run() -> None:
        try:
            call()
        except BaseException as error:
            outcome.set_exception(error)
        else:
            outcome.set_result(None)

    Thread(target=run, name=name, daemon=True).start()
    return outcome
