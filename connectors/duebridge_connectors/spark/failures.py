"""Translates what Spark says of a failed job into one line of ours."""

import re

from pyspark.errors import PySparkException

from duebridge import errors
from duebridge.errors import BridgeError, ConfigError, JobFailed

_BRIDGE_ERROR = re.compile(r"bridge\.errors\.(\w+): (.+)")
_TRACEBACK = "Traceback (most recent call last):\n"
_FRAMES = re.compile(rf"{re.escape(_TRACEBACK)}(?:[ \t].*\n)+")


def job_error(error: PySparkException) -> BridgeError:
    """Translate a failure of Spark; a `BridgeError` raised by a task is restored."""
    text = str(error)
    for name, message in reversed(_BRIDGE_ERROR.findall(text)):
        kind = getattr(errors, name, None)
        if isinstance(kind, type) and issubclass(kind, BridgeError):
            return kind(message)
    first = _cause(text) or type(error).__name__
    is_query = type(error).__name__ in ("AnalysisException", "ParseException")
    return ConfigError(first) if is_query else JobFailed(first)


def _cause(text: str) -> str:
    """Return the line that says why: what follows the last traceback, else the first line."""
    *_, rest = _FRAMES.split(text)
    lines = filter(None, map(str.strip, rest.splitlines()))
    return next(lines, "") or next(filter(None, map(str.strip, text.splitlines())), "")
