"""Configures structured logs: text on a terminal, else JSON; never a body or a secret.

What libraries log, Python's warnings, and errors of threads take the same form.
"""

import logging
import os
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import structlog
from structlog.tracebacks import ExceptionDictTransformer
from structlog.typing import Processor

LEVEL = logging.INFO
QUIET_S = 30.0  # a client that cannot connect logs many lines a second


def configure_logs() -> None:
    """Send every log line of the process, from `LEVEL` on, to standard error."""
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            *(_for_people() if sys.stderr.isatty() else _for_machines()),
        ],
        wrapper_class=_loggers_that_never_raise(),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
        cache_logger_on_first_use=True,
    )
    logging.basicConfig(handlers=[LibraryHandler()], force=True)
    logging.captureWarnings(True)
    threading.excepthook = _log_thread
    sys.unraisablehook = _log_unraisable


def _loggers_that_never_raise() -> type[Any]:
    """Return a class of loggers; a line that cannot be written ends no thread.

    What is logged as memory runs out, or standard error is full, most often tells of just that.
    """
    filtering: Any = structlog.make_filtering_bound_logger(LEVEL)

    def say(self: Any, *args: Any, **fields: Any) -> None:
        with suppress(Exception):
            filtering._proxy_to_logger(self, *args, **fields)

    return type("LoggerThatNeverRaises", (filtering,), {"_proxy_to_logger": say})


class LibraryHandler(logging.Handler):
    """Logs what libraries say: of a logger and level one line in `QUIET_S`, then how many more."""

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._monotonic = monotonic
        self._said_at: dict[tuple[str, int], float] = {}
        self._omitted: dict[tuple[str, int], int] = {}

    def emit(self, record: logging.LogRecord) -> None:
        """Log a record, without its stack trace, whose frames may quote a secret."""
        kind, now = (record.name, record.levelno), self._monotonic()
        if now - self._said_at.get(kind, -QUIET_S) < QUIET_S:
            self._omitted[kind] = self._omitted.get(kind, 0) + 1
            return
        self._said_at[kind] = now
        fields: dict[str, object] = {"logger": record.name, "says": _message(record)}
        if omitted := self._omitted.pop(kind, 0):
            fields["omitted"] = omitted
        structlog.get_logger().log(record.levelno, "library", **fields)


def _message(record: logging.LogRecord) -> str:
    try:
        return record.getMessage()
    except Exception:  # its arguments do not fit its text: no reason to fail the library's call
        return str(record.msg)


def _log_thread(failed: threading.ExceptHookArgs) -> None:
    thread = failed.thread.name if failed.thread else ""
    _log_error("thread_failed", failed.exc_value, thread=thread)


def _log_unraisable(failed: "sys.UnraisableHookArgs") -> None:
    _log_error("error_ignored", failed.exc_value, where=repr(failed.object))


def _log_error(event: str, error: BaseException | None, **fields: str) -> None:
    structlog.get_logger().error(event, exc_info=error, **fields)


# Both render exceptions without local variables, which hold bodies and passwords.
def _for_people() -> list[Processor]:
    return [
        structlog.dev.ConsoleRenderer(
            colors="NO_COLOR" not in os.environ, exception_formatter=structlog.dev.plain_traceback
        )
    ]


def _for_machines() -> list[Processor]:
    frames = ExceptionDictTransformer(show_locals=False)
    return [structlog.processors.ExceptionRenderer(frames), structlog.processors.JSONRenderer()]
