"""Enables tracing of envelopes that carry a `traceparent`; costs nothing if disabled.

The extra `otel` installs OpenTelemetry. A producing program configures it in code; `duebridge
run` reads OpenTelemetry's standard variables, such as OTEL_EXPORTER_OTLP_ENDPOINT.
"""

import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Protocol

from duebridge.config.models import Route
from duebridge.envelope import Envelope
from duebridge.ports.publisher import Outcome
from duebridge.receipt import Receipt
from duebridge.store.wire.leases import LeasedEnvelope

ENDPOINTS = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")


class Tracing(Protocol):
    """Records spans after the fact; envelopes without a `traceparent` have none."""

    def scheduled(
        self,
        route: str,
        pairs: Sequence[tuple[Envelope, Receipt | None]],
        started_ns: int,
        ended_ns: int,
    ) -> None:
        """Record the scheduling of a batch; times by this machine's clock.

        An envelope without a receipt has no answer: the store call failed.
        """

    def published(
        self,
        route: Route,
        leased: Sequence[LeasedEnvelope],
        outcomes: Sequence[Outcome],
        between_ms: tuple[int, int],
    ) -> None:
        """Record the wait of a batch and its publishing; times by the store's clock."""


def find_tracing() -> Tracing | None:
    """Return the tracing of this program if it has configured OpenTelemetry, else None."""
    if "opentelemetry.trace" not in sys.modules:  # then it is not configured
        return None
    from duebridge.telemetry.spans import Spans, is_set_up

    return Spans() if is_set_up() else None


@contextmanager
def traced_process(environment: Mapping[str, str] = os.environ) -> Iterator[Tracing | None]:
    """Yield the tracing of a duebridge process; None unless the variables name an endpoint."""
    if not any(map(environment.get, ENDPOINTS)) or environment.get("OTEL_SDK_DISABLED") == "true":
        yield None
        return
    try:
        from duebridge.telemetry.spans import Spans, exporting_provider, flush
    except ImportError as error:
        import structlog  # lazy: producers import this module and need no log

        log = structlog.get_logger()
        log.warning("not_traced", error=str(error), remedy="pip install 'duebridge[otel]'")
        yield None
        return
    provider = exporting_provider()
    try:
        yield Spans(provider)
    finally:
        flush(provider)
