"""Structured logs, text on a terminal and else JSON: route, id, attempt; no body, no secret."""

import logging
import os
import sys

import structlog


def configure_logs(level: str = "info") -> None:
    """Send every log line of the process to standard error."""
    is_terminal = sys.stderr.isatty()
    has_colors = "NO_COLOR" not in os.environ
    renderer = (
        structlog.dev.ConsoleRenderer(colors=has_colors)
        if is_terminal
        else structlog.processors.JSONRenderer()
    )
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.dict_tracebacks,
            renderer,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(logging.getLevelName(level.upper())),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
        cache_logger_on_first_use=True,
    )
