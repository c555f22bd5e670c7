"""Logs, and spans of an envelope that carries a traceparent where tracing is set up."""

import gzip
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import StatusCode
from structlog.testing import capture_logs

from duebridge.envelope import Envelope
from duebridge.errors import StoreFull, StoreUnavailable
from duebridge.ports.publisher import Delivery, Outcome, Reason, Verdict
from duebridge.telemetry.spans import Spans
from duebridge.telemetry.tracing import traced_process
from tests.acceptance.site import Worker, running
from tests.acceptance.works import Works, started
from tests.support.command import Command, wait_until
from tests.support.floor import Floor

TRACE, SPAN = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
TRACEPARENT = f"00-{TRACE}-{SPAN}-01"
FAILED = Outcome(Verdict.FAILED, error_class="Nack", error_message="not now")
REJECTED = Outcome(Verdict.REJECTED, Reason.TOO_LARGE, "TooLarge", "2 MiB")
PROGRAM = """\
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from duebridge.telemetry.tracing import find_tracing
print(find_tracing() is None)
trace.set_tracer_provider(TracerProvider())
print(find_tracing() is None)
"""


class Traced(Works):
    """A worker and a producer that are both traced into memory."""

    def __init__(self, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
        self._exporter = InMemorySpanExporter()
        provider = TracerProvider()
        provider.add_span_processor(SimpleSpanProcessor(self._exporter))
        tracing = Spans(provider)
        monkeypatch.setattr("duebridge.producer.find_tracing", lambda: tracing)
        super().__init__(url, {"r": "a/t"}, tracing, retry={"initial": "1ms", "jitter": "none"})

    def deliver(self, **fields: Any) -> Delivery:
        """Schedule one envelope, and wait until it has arrived and is settled."""
        given = {"delay": "20ms", "headers": {"traceparent": TRACEPARENT, "tenant": "a"}, **fields}
        self.producer.schedule("r", b"canary", id="a", **given)
        self.await_arrivals(1)
        wait_until(lambda: self.producer.get("r", "a") is None, "the ack")
        return self.publishers["a"].delivered[0]

    def spans(self, count: int) -> dict[str, list[ReadableSpan]]:
        """Return the spans by the first word of their name, once there are so many."""
        wait_until(lambda: len(self._exporter.get_finished_spans()) >= count, "spans")
        found: dict[str, list[ReadableSpan]] = {}
        for span in self._exporter.get_finished_spans():
            found.setdefault(span.name.split()[0], []).append(span)
        return found


@pytest.fixture
def works(embedded: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Traced]:
    with started(Traced(f"embedded:{embedded}", monkeypatch)) as works:
        yield works


def test_trace_of_a_delivery_has_linked_spans_without_content(works: Traced) -> None:
    delivery = works.deliver()
    headers = dict(delivery.headers)
    assert delivery.headers[:2] == (("traceparent", TRACEPARENT), ("tenant", "a"))
    found = works.spans(3)
    ((schedule,), (wait,), (publish,)) = (found[name] for name in ("schedule", "wait", "publish"))
    for span in (schedule, wait, publish):
        assert span.context is not None
        assert span.parent is not None
        assert f"{span.context.trace_id:032x}" == TRACE
        assert (f"{span.parent.span_id:016x}", span.parent.is_remote) == (SPAN, True)
        assert span.name.endswith(" r")
    assert [link.context for link in publish.links] == [wait.context]
    assert wait.start_time == int(headers["x-scheduled-at"]) * 1_000_000
    assert wait.end_time == publish.start_time
    assert publish.start_time is not None
    assert publish.end_time is not None
    assert int(headers["x-due-at"]) * 1_000_000 <= publish.start_time <= publish.end_time
    assert dict(publish.attributes or {}).items() >= {
        "messaging.message.id": "a",
        "messaging.destination.name": "a:t",
        "duebridge.route": "r",
        "duebridge.attempt": 1,
        "duebridge.verdict": "confirmed",
    }.items()  # fmt: skip
    assert (schedule.attributes or {})["duebridge.status"] == "accepted"
    everything = "".join(span.to_json() for span in (schedule, wait, publish))
    assert "canary" not in everything
    assert "tenant" not in everything


def test_trace_of_a_call_that_the_store_does_not_answer_has_an_error(
    works: Traced, monkeypatch: pytest.MonkeyPatch
) -> None:
    def schedule(*_: Any, **__: Any) -> Any:
        raise StoreFull("no room")

    monkeypatch.setattr("duebridge.store.delay_store.DelayStore.schedule", schedule)
    with pytest.raises(StoreFull):
        works.producer.schedule("r", b"x", delay="1s", headers={"traceparent": TRACEPARENT})
    (span,) = works.spans(1)["schedule"]
    assert span.status.status_code is StatusCode.ERROR
    assert "duebridge.status" not in (span.attributes or {})


def test_trace_of_a_retry_has_a_publish_for_each_attempt(works: Traced) -> None:
    answers = [Outcome(Verdict.FAILED, error_class="Nack", error_message="not now")]
    works.publishers["a"].script(lambda _: answers.pop() if answers else None)
    works.deliver()
    first, second = works.spans(5)["publish"]
    assert (first.status.status_code, first.status.description) == (StatusCode.ERROR, "Nack")
    assert second.status.status_code is StatusCode.UNSET
    assert [(span.attributes or {})["duebridge.attempt"] for span in (first, second)] == [1, 2]


def test_trace_of_a_delivery_that_the_store_fails_to_take_has_its_publish(
    works: Traced, monkeypatch: pytest.MonkeyPatch
) -> None:
    def ack(*_: Any, **__: Any) -> Any:
        raise StoreUnavailable("away")

    monkeypatch.setattr("duebridge.store.delay_store.DelayStore.ack", ack)
    works.producer.schedule("r", b"x", delay="1ms", headers={"traceparent": TRACEPARENT})
    (publish,) = works.spans(3)["publish"]
    assert (publish.attributes or {})["duebridge.verdict"] == "confirmed"


@pytest.mark.parametrize(
    "headers", [{}, {"traceparent": "00-nonsense"}, {"traceparent": b"\xff"}, {"traceparent": None}]
)
def test_envelope_without_a_valid_traceparent_has_no_span(
    works: Traced, headers: dict[str, Any]
) -> None:
    works.deliver(headers=headers)
    works.producer.schedule_many(
        "r", [Envelope.new(b"", delay="1ms", headers={"traceparent": TRACEPARENT.encode()})]
    )
    found = {name: len(spans) for name, spans in works.spans(3).items()}
    assert found == {"schedule": 1, "wait": 1, "publish": 1}


def test_producer_is_traced_only_where_its_program_set_it_up() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, check=True)
    assert done.stdout == b"True\nFalse\n"


@pytest.mark.parametrize(
    "environment", [{}, {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://h", "OTEL_SDK_DISABLED": "true"}]
)
def test_process_that_is_told_nothing_is_not_traced(environment: dict[str, str]) -> None:
    with traced_process(environment) as tracing:
        assert tracing is None


def test_process_without_the_extra_says_so_and_is_not_traced(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "duebridge.telemetry.spans", None)
    environment = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://localhost:4318"}
    with capture_logs() as logs, traced_process(environment) as tracing:
        assert tracing is None
    assert [line["event"] for line in logs] == ["not_traced"]
    assert "pip install 'duebridge[otel]'" in logs[0]["remedy"]


@contextmanager
def collector() -> Iterator[tuple[str, list[ExportTraceServiceRequest]]]:
    """A collector of OTLP over HTTP: its address, and what it was sent."""
    received: list[ExportTraceServiceRequest] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            if self.headers.get("Content-Encoding") == "gzip":
                body = gzip.decompress(body)
            received.append(ExportTraceServiceRequest.FromString(body))
            self.send_response(200)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_address[1]}", received
        server.shutdown()
        thread.join()


@contextmanager
def delivering_run(duebridge: Command, endpoint: str) -> Iterator[Worker]:
    """Give a worker that has delivered a traced envelope."""
    traced = f"traceparent={TRACEPARENT}"
    duebridge("send", "invoices", "hello", "--delay", "1ms", "--id", "a", "--header", traced)
    with running(duebridge, OTEL_EXPORTER_OTLP_ENDPOINT=endpoint) as worker:
        wait_until(lambda: duebridge("get", "invoices", "a").code == 1, "the delivery")
        yield worker


def test_run_sends_its_spans_to_a_collector_before_it_ends(duebridge: Command) -> None:
    with collector() as (url, received), delivering_run(duebridge, url) as worker:
        assert worker.end() == 0
    resources = [each for request in received for each in request.resource_spans]
    services = {
        each.value.string_value
        for resource in resources
        for each in resource.resource.attributes
        if each.key == "service.name"
    }
    assert services == {"duebridge"}
    spans = [
        span for resource in resources for scope in resource.scope_spans for span in scope.spans
    ]
    found = {(span.name, span.trace_id.hex()) for span in spans}
    assert found == {("wait invoices", TRACE), ("publish invoices", TRACE)}


def test_run_with_a_collector_that_is_away_delivers_and_drains_all_the_same(
    duebridge: Command,
) -> None:
    with delivering_run(duebridge, "http://127.0.0.1:1") as worker:
        assert worker.end() == 0
        assert "tracing" in worker.events()


def test_log_after_a_failure_names_route_id_attempt_and_error(floor: Floor) -> None:
    floor.publisher.script(lambda _: FAILED)
    floor.schedule("a", "b")
    with capture_logs() as logs:
        floor.turn(1000)
    lines = [line for line in logs if line["event"] == "retried"]
    assert len(lines) == 1
    assert lines[0].items() >= {
        "log_level": "info", "route": "r", "id": "a", "attempt": 1, "count": 2, "counted": True,
        "error": "Nack: not now",
    }.items()  # fmt: skip
    each = [line["id"] for line in logs if line["event"] == "envelope"]
    assert each == ["a", "b"]


def test_log_after_a_burial_is_a_warning_with_the_reason(floor: Floor) -> None:
    floor.publisher.script(lambda delivery: REJECTED if delivery.target.topic == "t" else None)
    floor.schedule("a")
    with capture_logs() as logs:
        floor.turn(1000)
    line = next(line for line in logs if line["event"] == "buried")
    assert (line["log_level"], line["reason"], line["id"]) == ("warning", "too_large", "a")


def test_log_of_a_whole_life_shows_no_body_key_or_header(floor: Floor) -> None:
    floor.publisher.script(lambda delivery: FAILED if delivery.target.topic == "t" else None)
    floor.schedule("a", delay="1s", key=b"canary-key", headers={"tenant": "canary-header"})
    with capture_logs() as logs:
        for wait_ms in (1000, 1000, 2000, 1000):
            floor.turn(wait_ms)
    assert {line["event"] for line in logs} >= {"retried", "buried", "shunted"}
    assert "canary" not in str(logs)
    assert "body of a" not in str(logs)
