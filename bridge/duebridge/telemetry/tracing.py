"""Whether envelopes that carry a `traceparent` are traced, and by whom; off, it costs nothing.

The extra `otel` brings what is needed. A program that schedules sets OpenTelemetry up as it likes;
`duebridge run` does by OpenTelemetry's own variables, such as OTEL_EXPORTER_OTLP_ENDPOINT.
"""

import os
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import NamedTuple, Protocol

import structlog

from duebridge.config.models import Route
from duebridge.envelope import Envelope, Headers
from duebridge.ports.publisher import Outcome
from duebridge.receipt import Receipt
from duebridge.store.replies import Leased

ENDPOINTS = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")

log = structlog.get_logger()


class Tracing(Protocol):
    """Makes the spans of what just happened; what carries no `traceparent` has none."""

    def scheduled(
        self, pairs: Sequence[tuple[Envelope, Receipt]], started_ns: int, ended_ns: int
    ) -> None:
        """A batch was handed to the store; by this machine's clock."""

    def published(
        self,
        route: Route,
        leased: Sequence[Leased],
        outcomes: Sequence[Outcome],
        between_ms: tuple[int, int],
    ) -> None:
        """A batch has waited until it was due, and was published; by the store's clock."""


def find_tracing() -> Tracing | None:
    """Return what traces where this program has set OpenTelemetry up, else None."""
    if "opentelemetry.trace" not in sys.modules:  # then it cannot have
        return None
    from duebridge.telemetry.spans import Spans, is_set_up

    return Spans() if is_set_up() else None


@contextmanager
def traced_process(environment: Mapping[str, str] = os.environ) -> Iterator[Tracing | None]:
    """Give what traces a process of duebridge's own; None where the variables ask for nothing."""
    if not any(map(environment.get, ENDPOINTS)) or environment.get("OTEL_SDK_DISABLED") == "true":
        yield None
        return
    try:
        from duebridge.telemetry.spans import Spans, exporting_provider, flush
    except ImportError as error:
        log.warning("not_traced", error=str(error), remedy="pip install 'duebridge[otel]'")
        yield None
        return
    provider = exporting_provider()
    try:
        yield Spans(provider)
    finally:
        flush(provider)


_FORM = re.compile(r"00-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})")
_SAMPLED = 0x01


class TraceParent(NamedTuple):
    """Which trace and span an envelope was scheduled in; `is_sampled`: somebody keeps it."""

    trace_id: str
    span_id: str
    is_sampled: bool


def find_traceparent(headers: Headers) -> TraceParent | None:
    """Return the traceparent of an envelope's headers; None where there is none that is valid."""
    for name, value in headers:
        if name == "traceparent":
            return _parse(value.decode("latin-1") if isinstance(value, bytes) else str(value))
    return None


def _parse(text: str) -> TraceParent | None:
    found = _FORM.fullmatch(text)
    if found is None or not int(found[1], 16) or not int(found[2], 16):
        return None
    return TraceParent(found[1], found[2], bool(int(found[3], 16) & _SAMPLED))
