"""Records the OpenTelemetry spans of an envelope: schedule, wait, publish.

    the span that `traceparent` names
      ├─ schedule   in the producer: the store call
      ├─ wait       until a worker hands the envelope to the broker's client
      └─ publish    until the broker's answer; linked to its wait

All are children of the user's span, in one trace: the bridge delivers `traceparent` unchanged, so
it cannot name one of these spans.
"""

import logging
import threading
from collections.abc import Sequence

import structlog
from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import OTELResourceDetector, Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.trace import Link, SpanKind, StatusCode
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from duebridge.config.models import Route
from duebridge.envelope import Envelope, Headers
from duebridge.ports.publisher import Outcome, Verdict
from duebridge.receipt import Receipt
from duebridge.store.wire.leases import LeasedEnvelope
from duebridge.telemetry.traceparent import find_traceparent, header_text

NAME = "duebridge"
NS_PER_MS = 1_000_000
FLUSH_WITHIN_S = 2.0  # at process exit: an unreachable collector must not delay the drain
_CARRIED = ("traceparent", "tracestate")

log = structlog.get_logger()

_propagator = TraceContextTextMapPropagator()


def is_set_up() -> bool:
    """Whether this program has configured a tracer provider."""
    return not isinstance(trace.get_tracer_provider(), trace.ProxyTracerProvider)


class Spans:
    """Records spans with a provider, by default the program's own."""

    def __init__(self, provider: trace.TracerProvider | None = None) -> None:
        self._tracer = trace.get_tracer(NAME, tracer_provider=provider)

    def scheduled(
        self,
        route: str,
        pairs: Sequence[tuple[Envelope, Receipt | None]],
        started_ns: int,
        ended_ns: int,
    ) -> None:
        """Record one span per envelope of a batch, whatever its receipt; without one, an error."""
        for envelope, receipt in pairs:
            parent = _parent(envelope.headers)
            if parent is None:
                continue
            attributes: dict[str, str | int] = {
                "messaging.message.id": envelope.id,
                "duebridge.route": route,
            }
            if receipt is not None:
                attributes["duebridge.status"] = receipt.status
                attributes["duebridge.due_at_ms"] = receipt.due_at_ms
            span = self._tracer.start_span(
                f"schedule {route}", parent, SpanKind.PRODUCER, attributes, start_time=started_ns
            )
            if receipt is None:
                span.set_status(StatusCode.ERROR, "no answer of the store")
            span.end(ended_ns)

    def published(
        self,
        route: Route,
        leased: Sequence[LeasedEnvelope],
        outcomes: Sequence[Outcome],
        between_ms: tuple[int, int],
    ) -> None:
        """Record the two spans of every envelope of a batch, a pair per attempt."""
        for envelope, outcome in zip(leased, outcomes, strict=True):
            parent = _parent(envelope.content.headers)
            if parent is not None:
                self._publish(route, envelope, outcome, parent, between_ms)

    def _publish(
        self,
        route: Route,
        leased: LeasedEnvelope,
        outcome: Outcome,
        parent: Context,
        between_ms: tuple[int, int],
    ) -> None:
        started_ns, ended_ns = (at_ms * NS_PER_MS for at_ms in between_ms)
        attributes: dict[str, str | int] = {
            "messaging.message.id": leased.id,
            "messaging.destination.name": str(leased.content.target or route.target),
            "duebridge.route": route.name,
            "duebridge.attempt": leased.flight.attempt,
            "duebridge.due_at_ms": leased.record.due_at_ms,
        }
        scheduled_ns = leased.record.scheduled_at_ms * NS_PER_MS
        wait = self._tracer.start_span(
            f"wait {route.name}", parent, SpanKind.INTERNAL, attributes, start_time=scheduled_ns
        )
        wait.end(started_ns)
        publish = self._tracer.start_span(
            f"publish {route.name}",
            parent,
            SpanKind.PRODUCER,
            attributes | {"duebridge.verdict": outcome.verdict.value},
            [Link(wait.get_span_context())],
            started_ns,
        )
        if outcome.verdict is not Verdict.CONFIRMED:
            publish.set_status(StatusCode.ERROR, outcome.error_class)
        publish.end(ended_ns)


def _parent(headers: Headers) -> Context | None:
    """Return the context of the user's span; None without a valid traceparent."""
    if find_traceparent(headers) is None:
        return None
    carrier = {name: header_text(value) for name, value in headers if name in _CARRIED}
    return _propagator.extract(carrier, Context())


def exporting_provider() -> TracerProvider:
    """Return a provider that exports over OTLP; OTEL_SERVICE_NAME overrides the service name."""
    named = Resource.create({"service.name": NAME}).merge(OTELResourceDetector().detect())
    provider = TracerProvider(resource=named, shutdown_on_exit=False)
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    logger = logging.getLogger("opentelemetry")
    logger.addHandler(_StructlogHandler())
    logger.propagate = False
    return provider


def flush(provider: TracerProvider) -> None:
    """Export the remaining spans, for at most `FLUSH_WITHIN_S`."""
    flushing = threading.Thread(target=provider.force_flush, name="flush", daemon=True)
    flushing.start()
    flushing.join(FLUSH_WITHIN_S)


class _StructlogHandler(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        log.warning("tracing", error=record.getMessage())
