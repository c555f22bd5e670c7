"""An envelope is accepted only if it can be delivered and, after that fails, be a dead letter."""

from functools import cache
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from kafka.record.default_records import DefaultRecordBatchBuilder
from pika.spec import BasicProperties

from duebridge.config.models import Config
from duebridge.durations import MAX_MS
from duebridge.envelope import Envelope, Properties, Target
from duebridge.errors import EnvelopeError
from duebridge.headers import dead_letter_headers
from duebridge.ports.broker import MAX_MESSAGE_HEADER_BYTES
from duebridge.ports.publisher import Delivery, Reason
from duebridge.scheduling.limits import MAX_HEADER_BYTES, MAX_HEADERS, RouteLimits
from duebridge.sizes import header_bytes
from duebridge.store.wire.leases import LeasedEnvelope
from duebridge.store.wire.record import EnvelopeContent, Flight, Record
from duebridge_connectors.kafka.headers import plain_headers
from duebridge_connectors.rabbitmq.letters import as_letter
from duebridge_connectors.rabbitmq.publishing.encoding import OVERHEAD_BYTES, header_payload
from duebridge_connectors.rabbitmq.sizes import ANY_BYTES

MIB = 1_048_576
BROKERS: dict[str, dict[str, Any]] = {
    "memory": {"type": "memory"},
    "kafka": {"type": "kafka", "bootstrap_servers": ["localhost:9092"]},
    "small": {
        "type": "kafka",
        "bootstrap_servers": ["localhost:9092"],
        "options": {"max.request.size": 70_000},
    },
    "referred": {
        "type": "kafka",
        "bootstrap_servers": ["localhost:9092"],
        "options": {"max.request.size": "${SIZE}"},
    },
    "rabbitmq": {"type": "rabbitmq", "url": "amqp://localhost"},
    "narrow": {"type": "rabbitmq", "url": "amqp://localhost", "options": {"frame_max": 4096}},
}
WHOLE = ("priority", "timestamp")
REPEATED = [("h", "1"), ("h", "2")]


@cache
def limits(target: str, dead_letter: str = "") -> RouteLimits:
    route: dict[str, Any] = {"max_body": "1MiB"}
    for key, broker in (("target", target), ("dead_letter", dead_letter)):
        if broker:
            is_rabbit = BROKERS[broker]["type"] == "rabbitmq"
            place = {"exchange": "", "routing_key": key} if is_rabbit else {"topic": key}
            route[key] = {"broker": broker, **place}
    config = Config.model_validate({"version": 1, "brokers": BROKERS, "routes": {"r": route}})
    return RouteLimits.of(config, config.routes["r"])


def new(body: bytes | None = b"x", **fields: Any) -> Envelope:
    return Envelope.new(body, delay="1s", **fields)


TO_RABBITMQ = r" \(its dead letter would go to broker 'rabbitmq'\)$"
REFUSED = [
    (("rabbitmq",), {"body": None}, "^body: expected bytes on RabbitMQ; got None$"),
    (("rabbitmq",), {"key": b"k"}, "^key: expected none on RabbitMQ"),
    (("rabbitmq",), {"headers": REPEATED}, "^headers: expected distinct names on RabbitMQ"),
    (("kafka",), {"priority": 5}, "^properties: expected only content_type .*; got priority$"),
    (("kafka",), {"body": None}, "^body: expected a key beside a body of None"),
    (("kafka", "rabbitmq"), {"body": None, "key": b"k"}, f"^body: .*; got None{TO_RABBITMQ}"),
    (("kafka", "rabbitmq"), {"headers": REPEATED}, f"^headers: expected distinct .*{TO_RABBITMQ}"),
    (("kafka", "rabbitmq"), {"key": b"k" * 131_072}, f"headers, key: .*131072 .*{TO_RABBITMQ}"),
    (("memory", "kafka"), {"body": None}, "^body: expected a key .*broker 'kafka'"),
    (("kafka",), {"body": b"x" * MIB}, r"^body: .* 1048576 bytes .*\(max.request.size\); got 10"),
    (("memory", "kafka"), {"body": b"x" * (MIB - 500)}, "^body: .*dead letter would go"),
    (("small",), {"body": b"x" * 70_000}, "^body: expected a record of at most 70000 bytes"),
    (("kafka",), {"body": b"x", "key": b"k" * MIB}, "^body: expected a record of at most"),
    (("narrow",), {"headers": {"h": "v" * 4000}}, "^headers: expected at most 4096 bytes"),
    (("memory", "narrow"), {"headers": {"h": "v" * 2500}}, "^headers: expected at most 4096"),
]
ACCEPTED = [
    (("rabbitmq",), {"priority": 5, "type": "t"}),
    (("kafka",), {"body": None, "key": b"k", "headers": REPEATED}),
    (("kafka", "kafka"), {"body": None, "key": b"k", "headers": REPEATED}),
    (("kafka", "rabbitmq"), {"key": b"k"}),
    (("rabbitmq", "kafka"), {"priority": 5, "reply_to": "q"}),
    (("memory",), {"body": None, "headers": REPEATED}),
    (("kafka",), {"body": b"x" * (MIB - 600)}),
    (("referred",), {"body": b"x" * MIB}),
    (("rabbitmq", "rabbitmq"), {"body": b"x" * MIB, "headers": {"h": "v" * 32_000}}),
    (("narrow",), {"headers": {"h": "v" * 2500}}),
]


@pytest.mark.parametrize(("brokers", "fields", "message"), REFUSED)
def test_check_what_could_not_arrive_or_not_be_a_dead_letter_is_refused(
    brokers: tuple[str, ...], fields: dict[str, Any], message: str
) -> None:
    with pytest.raises(EnvelopeError, match=message):
        limits(*brokers).check(new(**fields))


@pytest.mark.parametrize(("brokers", "fields"), ACCEPTED)
def test_check_what_can_arrive_and_be_a_dead_letter_is_accepted(
    brokers: tuple[str, ...], fields: dict[str, Any]
) -> None:
    limits(*brokers).check(new(**fields))


def letter(envelope: Envelope) -> Delivery:
    """Return the largest dead letter that the worker makes of an envelope."""
    flight = Flight(
        2**32,
        reason=Reason.ATTEMPTS_EXHAUSTED,
        first_failed_at_ms=MAX_MS,
        last_failed_at_ms=MAX_MS,
        error_message="x" * 1024,
    )
    record = Record(MAX_MS, 0, 0, MAX_MS, 0, b"", b"")
    leased = LeasedEnvelope(
        envelope.id, record, flight, EnvelopeContent(None, headers=envelope.headers)
    )
    headers = dead_letter_headers(leased, "r", Target("memory", topic="target"))
    to = Target("b", topic="t")
    return Delivery(
        envelope.id, to, envelope.body, envelope.key, headers, envelope.properties, True
    )


values = st.one_of(st.none(), st.booleans(), st.integers(-(2**63), 2**63 - 1), st.text(max_size=9))
fields = st.fixed_dictionaries(
    {
        "id": st.just("x" * 255),
        "key": st.none() | st.binary(max_size=9),
        "headers": st.dictionaries(st.text("abcü", min_size=1), values, max_size=20),
        "content_type": st.sampled_from([None, "text/plain"]),
        "priority": st.sampled_from([None, 9]),
        "reply_to": st.sampled_from([None, "q" * 255]),
        "expiration": st.sampled_from([None, "9" * 255]),
    }
)


def kafka_bytes(sent: Delivery) -> int:
    headers = plain_headers(sent.headers, sent.properties)
    size = DefaultRecordBatchBuilder.estimate_size_in_bytes(sent.key, sent.body, headers)
    return int(size)


@given(fields)
def test_check_refuses_the_first_dead_letter_that_kafka_python_would(given: dict[str, Any]) -> None:
    room = 70_000 - kafka_bytes(letter(new(b"", **given)))
    limits("memory", "small").check(new(bytes(room - 600), **given))
    with pytest.raises(EnvelopeError, match=r"max\.request\.size"):
        limits("memory", "small").check(new(bytes(room + 1), **given))


@given(fields)
@example({"headers": {"CC": 1, "BCC": "b"}, "expiration": "9" * 255})
def test_check_refuses_the_first_dead_letter_whose_headers_exceed_a_frame(
    given: dict[str, Any],
) -> None:
    empty = as_letter(letter(new(**{**given, "headers": {**given["headers"], "fill": b""}})))
    room = 4096 - OVERHEAD_BYTES - len(header_payload(empty, 0))
    for size in (room + 1, room - 600):
        envelope = new(**{**given, "headers": {**given["headers"], "fill": bytes(max(0, size))}})
        if size > room:
            with pytest.raises(EnvelopeError, match="one AMQP frame"):
                limits("memory", "narrow").check(envelope)
        elif size > 0:
            limits("memory", "narrow").check(envelope)


def test_headers_of_any_message_have_at_most_the_documented_bytes() -> None:
    half = "v" * (MAX_HEADER_BYTES // MAX_HEADERS - 2)
    widest = new(headers={f"{n:02d}": half for n in range(MAX_HEADERS)}, id="x" * 255)
    end = limits("rabbitmq", "kafka").dead_letter
    assert end is not None
    assert header_bytes(widest.headers + end.added) <= MAX_MESSAGE_HEADER_BYTES
    texts = {name: "v" * 255 for name in Properties.__struct_fields__ if name not in WHOLE}
    sent = letter(new(headers=dict(widest.headers), id=widest.id, **texts))
    assert len(header_payload(as_letter(sent), 0)) + OVERHEAD_BYTES <= ANY_BYTES
    more = plain_headers((), sent.properties)
    assert sum(len(name) + len(value or b"") for name, value in more) < 4096


def test_dead_letter_on_rabbitmq_has_the_key_as_a_header() -> None:
    sent = header_payload(letter(new(key=b"\xff\x00", headers={"h": "v"})), 1)
    decoded = BasicProperties()
    decoded.decode(sent, 12)
    assert decoded.headers is not None
    assert decoded.headers["x-dlq-key"] == b"\xff\x00"
    assert (decoded.headers["h"], decoded.headers["x-dlq-route"]) == ("v", "r")


def test_dead_letter_on_rabbitmq_has_each_moved_name_once() -> None:
    headers = (("x-dlq-expiration", "1"), ("CC", b"c"), ("x-dlq-cc", b"d"), ("cc", "v"))
    given = Delivery("a", Target("b"), b"x", None, headers, Properties(expiration="2"))
    moved = (("x-dlq-cc", b"c"), ("x-dlq-expiration", "2"))
    assert as_letter(given).headers == (("cc", "v"), *moved)


def test_dead_letter_on_kafka_has_the_properties_as_headers() -> None:
    sent = letter(new(priority=5, reply_to="q", content_type="text/plain"))
    found = dict(plain_headers(sent.headers, sent.properties))
    kept = {"x-dlq-priority": b"5", "x-dlq-reply-to": b"q", "content-type": b"text/plain"}
    assert kept.items() <= found.items()
    assert len(found) == len(sent.headers) + 3
