"""Whether envelopes that carry a `traceparent` are traced, and by whom; off, it costs nothing.

The extra `otel` brings what is needed. A program that schedules sets OpenTelemetry up as it likes;
`duebridge run` does by OpenTelemetry's own variables, such as OTEL_EXPORTER_OTLP_ENDPOINT.
"""

import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Protocol

import structlog

from bridge.config import Route
from bridge.envelope import Envelope
from bridge.publisher import Outcome
from bridge.receipt import Receipt
from bridge.store.replies import Leased

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
    from bridge.spans import Spans, is_set_up

    return Spans() if is_set_up() else None


@contextmanager
def traced_process(environment: Mapping[str, str] = os.environ) -> Iterator[Tracing | None]:
    """Give what traces a process of duebridge's own; None where the variables ask for nothing."""
    if not any(map(environment.get, ENDPOINTS)) or environment.get("OTEL_SDK_DISABLED") == "true":
        yield None
        return
    try:
        from bridge.exporting import exporting_provider, flush
        from bridge.spans import Spans
    except ImportError as error:
        log.warning("not_traced", error=str(error), remedy="pip install 'duebridge[otel]'")
        yield None
        return
    provider = exporting_provider()
    try:
        yield Spans(provider)
    finally:
        flush(provider)
