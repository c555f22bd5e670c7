"""Structured logs, text on a terminal and else JSON: route, id, attempt; no body, no secret."""

import logging
import os
import sys

import structlog
from structlog.tracebacks import ExceptionDictTransformer
from structlog.typing import Processor


def configure_logs(level: str = "info") -> None:
    """Send every log line of the process to standard error."""
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            *(_for_people() if sys.stderr.isatty() else _for_machines()),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(logging.getLevelName(level.upper())),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
        cache_logger_on_first_use=True,
    )


# Of an exception both show the frames without their variables: those hold bodies and passwords.
def _for_people() -> list[Processor]:
    return [
        structlog.dev.ConsoleRenderer(
            colors="NO_COLOR" not in os.environ, exception_formatter=structlog.dev.plain_traceback
        )
    ]


def _for_machines() -> list[Processor]:
    frames = ExceptionDictTransformer(show_locals=False)
    return [structlog.processors.ExceptionRenderer(frames), structlog.processors.JSONRenderer()]
