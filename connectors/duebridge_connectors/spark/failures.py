"""Translates what Spark says of a failed job into one line of ours."""

import re

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException

from duebridge import errors
from duebridge.errors import BridgeError, ConfigError, JobFailed

_BRIDGE_ERROR = re.compile(r"bridge\.errors\.(\w+): (.+)")
_TRACEBACK = "Traceback (most recent call last):\n"
_FRAMES = re.compile(rf"{re.escape(_TRACEBACK)}(?:[ \t].*\n)+")
_MESSAGE_FIRST = re.compile(rf"^(.*[^\s:])\n{re.escape(_TRACEBACK)}", re.MULTILINE)  # no heading

_JAVA = re.compile(r"^: [\w.$]+: (.+)$", re.MULTILINE)
_JAVA_CAUSE = re.compile(r"^\s*Caused by: [\w.$]+: (.+)$", re.MULTILINE)
FAILURES = (PySparkException, Py4JJavaError)  # a file that cannot be read is one of the latter


def job_error(error: Exception) -> BridgeError:
    """Translate one of the `FAILURES`; a `BridgeError` raised by a task is restored."""
    text = str(error)
    for name, message in reversed(_BRIDGE_ERROR.findall(text)):
        kind = getattr(errors, name, None)
        if isinstance(kind, type) and issubclass(kind, BridgeError):
            return kind(message)
    first = _cause(text) or type(error).__name__
    is_query = type(error).__name__ in ("AnalysisException", "ParseException")
    return ConfigError(first) if is_query else JobFailed(first)


def _cause(text: str) -> str:
    """Return the line that says why: of Python's last traceback, of Java's causes, or the first.

    Python's stands after the frames, or before the title where `message_first` has put it.
    """
    if before := _MESSAGE_FIRST.findall(text):
        return str(before[-1])
    _, *rest = _FRAMES.split(text)
    if rest:
        return _first_line(rest[-1])
    java = [*_JAVA.findall(text)[:1], *_JAVA_CAUSE.findall(text)[-1:]]
    return "; ".join(java) or _first_line(text)


def _first_line(text: str) -> str:
    return next(filter(None, map(str.strip, text.splitlines())), "")
