"""Ctrl-C while Spark is at work: it ends the command, and nobody prints a traceback."""

import logging
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager

_NO_NEWS = (
    "KeyboardInterrupt while sending command.",
    "Exception occurred while shutting down connection",
)


@contextmanager
def held_back() -> Iterator[None]:
    """Let Ctrl-C wait for the end of the block, and be handled after it as before it.

    Around the start of a session: a JVM that is left alone half-way complains at length, and the
    handler that Spark sets then calls the JVM from within a call.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    pressed: list[int] = []
    before = signal.signal(signal.SIGINT, lambda number, _: pressed.append(number))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
    if pressed:
        raise KeyboardInterrupt


@contextmanager
def untold() -> Iterator[None]:
    """Keep py4j from logging a call that Ctrl-C ended, and its connection: that is no error."""
    logs = [logging.getLogger(name) for name in (None, "py4j.clientserver")]
    for log in logs:
        log.addFilter(_is_news)
    try:
        yield
    finally:
        for log in logs:
            log.removeFilter(_is_news)


def _is_news(record: logging.LogRecord) -> bool:
    return record.msg not in _NO_NEWS
