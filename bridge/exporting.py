"""Sends the spans of a process of duebridge's own, as OpenTelemetry's own variables say.

What OpenTelemetry has to say, such as of a collector that is away, becomes lines of our log.
"""

import logging
import threading

import structlog
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import OTELResourceDetector, Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor

from bridge.spans import NAME

FLUSH_WITHIN_S = 2.0  # at the end of a process: a collector that is away delays no drain

log = structlog.get_logger()


def exporting_provider() -> TracerProvider:
    """Return a provider that sends over OTLP; a service name of the variables' wins."""
    named = Resource.create({"service.name": NAME}).merge(OTELResourceDetector().detect())
    provider = TracerProvider(resource=named, shutdown_on_exit=False)
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    logger = logging.getLogger("opentelemetry")
    logger.addHandler(_ToOurLog())
    logger.propagate = False
    return provider


def flush(provider: TracerProvider) -> None:
    """Send what is left, as far as that is quickly done."""
    flushing = threading.Thread(target=provider.force_flush, name="flush", daemon=True)
    flushing.start()
    flushing.join(FLUSH_WITHIN_S)


class _ToOurLog(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        log.warning("tracing", error=record.getMessage())
