"""Reads the W3C `traceparent` header of an envelope."""

import re
from typing import NamedTuple

from duebridge.envelope import Headers, HeaderValue

_FORM = re.compile(r"00-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})")
_SAMPLED = 0x01


class TraceParent(NamedTuple):
    """The trace and span an envelope was scheduled in; `is_sampled` if the trace is kept."""

    trace_id: str
    span_id: str
    is_sampled: bool


def find_traceparent(headers: Headers) -> TraceParent | None:
    """Return the traceparent of an envelope's headers; None if there is no valid one."""
    for name, value in headers:
        if name == "traceparent":
            return _parse(header_text(value))
    return None


def header_text(value: HeaderValue) -> str:
    """Return a header's value as text, as HTTP reads its bytes."""
    return value.decode("latin-1") if isinstance(value, bytes) else str(value)


def _parse(text: str) -> TraceParent | None:
    found = _FORM.fullmatch(text)
    if found is None or not int(found[1], 16) or not int(found[2], 16):
        return None
    return TraceParent(found[1], found[2], bool(int(found[3], 16) & _SAMPLED))
