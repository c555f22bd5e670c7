"""A message that went through duebridge has each header and property that it had, to the byte."""

import secrets
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from struct import pack
from typing import Any

import pika
import pytest
from msgspec.msgpack import Ext

from duebridge.amqp_fields import AMQP_FIELD, field_bytes, shown_field
from duebridge.envelope import Envelope, Headers, Properties, Target
from duebridge.errors import EnvelopeError
from duebridge.jsonl import json_value
from duebridge.ports.publisher import Delivery, Verdict
from duebridge.ports.source import Arrival, SourcePlan
from duebridge.store.wire import record
from duebridge_connectors.kafka.headers import plain_headers
from duebridge_connectors.rabbitmq import open_publisher
from duebridge_connectors.rabbitmq.content import decode
from duebridge_connectors.rabbitmq.publishing.encoding import emit, publish_payload, table
from duebridge_connectors.rabbitmq.settings import connection_parameters
from duebridge_connectors.rabbitmq.source.arrivals import Reader
from duebridge_connectors.rabbitmq.source.consumer import QueueConsumer
from duebridge_connectors.rabbitmq.source.inbox import RawMessage
from duebridge_connectors.rabbitmq.source.prefetch import Prefetch
from duebridge_connectors.rabbitmq.source.rabbit_source import open_source
from tests.support.contract.source_under_test import Memory, received
from tests.support.servers import wait_until

HEADERS = 1 << 13
NAN = float("nan")


def sized(tag: bytes, content: bytes) -> bytes:
    return tag + pack(">I", len(content)) + content


def named(name: bytes, value: bytes) -> bytes:
    return bytes([len(name)]) + name + value


# Every type that RabbitMQ 3.10 knows; what is its value in JSON, and in our own types.
FIELDS = {
    "text": (sized(b"S", "grün".encode()), "grün"),
    "empty text": (sized(b"S", b""), ""),
    "text that is no UTF-8": (sized(b"S", b"\xff\xfe"), None),
    "bytes": (sized(b"x", b"\0\xff"), b"\0\xff"),
    "true": (b"t\1", True),
    "false": (b"t\0", False),
    "void": (b"V", None),
    "int8": (b"b" + pack(">b", -100), None),
    "uint8": (b"B" + pack(">B", 200), None),
    "int16": (b"s" + pack(">h", 5000), None),
    "uint16": (b"u" + pack(">H", 50_000), None),
    "int32": (b"I" + pack(">i", -(2**31)), -(2**31)),
    "uint32": (b"i" + pack(">I", 2**32 - 1), None),
    "int64 that fits into 32 bits": (b"l" + pack(">q", 5000), None),
    "int64": (b"l" + pack(">q", -(2**40)), -(2**40)),
    "float": (b"f" + pack(">f", 1.5), None),
    "double": (b"d" + pack(">d", 1.1), None),
    "decimal": (b"D" + pack(">BI", 2, 150), None),
    "timestamp": (b"T" + pack(">Q", 1_800_000_000), None),
    "table": (sized(b"F", named(b"a", b"V") + named(b"b", b"s\0\1")), None),
    "array": (sized(b"A", b"V" + b"t\1" + sized(b"S", b"x") + sized(b"F", b"")), None),
    "empty table": (sized(b"F", b""), None),
}
LIKE_OURS = {name for name, (_, value) in FIELDS.items() if value is not None} | {"void"}


@pytest.fixture
def make(channel: Any) -> Iterator[Callable[[], str]]:
    made: list[str] = []

    def make() -> str:
        made.append(f"fidelity-{secrets.token_hex(6)}")
        channel.queue_declare(made[-1], durable=True)
        return made[-1]

    yield make
    for name in made:
        channel.queue_delete(name)


def publish(channel: Any, queue: str, flags: int, fields: bytes, body: bytes = b"body") -> None:
    """Send a content header as it is."""
    connection = channel.connection._impl
    frames = [
        (1, publish_payload("", queue)),
        (2, pack(">HHQH", 60, 0, len(body), flags) + fields),
        (3, body),
    ]
    number = channel.channel_number
    emit(
        connection, b"".join(pack(">BHI", kind, number, len(p)) + p + b"\xce" for kind, p in frames)
    )
    channel.connection.process_data_events(0)
    channel.queue_declare(queue, passive=True)  # it has read that


@contextmanager
def raw_consumer(url: str, queue: str) -> Iterator[Callable[[], RawMessage]]:
    consumer = QueueConsumer(
        connection_parameters({"url": url}), queue, "first", Prefetch(10, 10**6)
    )

    def has_one() -> bool:
        consumer.step(0.1)
        assert consumer.fault is None
        return bool(consumer.held.messages)

    def take() -> RawMessage:
        wait_until(has_one, "a message")
        (message,) = consumer.take(1, 1)
        consumer.acknowledge([message.tag])
        return message

    with closing(consumer):
        yield take


def arrived(url: str, queue: str) -> Arrival:
    plan = SourcePlan("intake", "billing", {"queue": queue})
    with closing(open_source({"url": url}, plan, Memory())) as source:
        (arrival,) = received(source)
        source.settle([arrival])
        return arrival


def through_the_store(headers: Headers, properties: Properties | None) -> record.EnvelopeContent:
    given = {} if properties is None else properties.__class__.__struct_fields__
    fields: Any = {name: getattr(properties, name) for name in given}
    envelope = Envelope.new(b"body", delay="1s", headers=headers, **fields)
    return record.unpack(record.pack(envelope).blob)


def forward(url: str, queue: str, id_: str, content: record.EnvelopeContent) -> None:
    target = Target("billing", exchange="", routing_key=queue)
    headers, properties = content.headers, content.properties
    message = Delivery(id_, target, content.body, None, headers, properties)
    with closing(open_publisher({"url": url}, 15)) as publisher:
        (outcome,) = publisher.publish([message])
    assert outcome.verdict is Verdict.CONFIRMED, outcome


def test_forward_every_type_of_header_keeps_the_table_to_the_byte(
    rabbitmq_url: str, channel: Any, make: Callable[[], str]
) -> None:
    first, second = make(), make()
    names = (named(name.encode(), wire) for name, (wire, _) in FIELDS.items())
    content = b"".join(names)
    headers = pack(">I", len(content)) + content
    publish(channel, first, HEADERS, headers)
    arrival = arrived(rabbitmq_url, first)
    forward(rabbitmq_url, second, "an id", through_the_store(arrival.headers, arrival.properties))
    with raw_consumer(rabbitmq_url, second) as take:
        assert headers in take().header


@pytest.mark.parametrize("name", FIELDS)
def test_decode_and_encode_a_field_gives_the_same_bytes(name: str) -> None:
    wire, value = FIELDS[name]
    content = named(b"x", wire)
    headers = pack(">I", len(content)) + content
    found = decode(pack(">HHQH", 60, 0, 0, HEADERS) + headers).headers
    assert table(tuple(found.items())) == headers
    if name in LIKE_OURS:
        assert found == {"x": value}
    stored = through_the_store(tuple(found.items()), None).headers
    assert table(stored) == headers


def test_forward_all_properties_keeps_them(
    rabbitmq_url: str, channel: Any, make: Callable[[], str]
) -> None:
    first, second = make(), make()
    given = pika.BasicProperties(
        content_type="text/plain",
        content_encoding="gzip",
        headers={"a": "b"},
        delivery_mode=1,
        priority=7,
        correlation_id="42",
        reply_to="answers",
        expiration="600000",
        message_id="order-42",
        timestamp=1_800_000_000,
        type="order.due",
        user_id="guest",
        app_id="shop",
        cluster_id="old",
    )
    channel.basic_publish("", first, b"body", given)
    arrival = arrived(rabbitmq_url, first)
    assert (arrival.id, arrival.sent_at_ms) == ("order-42", 1_800_000_000_000)
    content = through_the_store(arrival.headers, arrival.properties)
    forward(rabbitmq_url, second, arrival.id, content)
    _, found, body = channel.basic_get(second, auto_ack=True)
    given.delivery_mode, given.cluster_id = 2, None
    given.headers = {"a": "b", "x-cluster-id": "old"}
    assert body == b"body"
    assert found.__dict__ == given.__dict__


def test_receive_a_foreign_user_id_keeps_it_as_a_header() -> None:
    reader = Reader(SourcePlan("i", "billing", {"queue": "q"}), "bridge", log="")
    header = pack(">HHQH", 60, 0, 0, 1 << 4) + b"\4shop"
    arrival = reader.arrival(RawMessage(1, b"key", header, b""), None)
    assert arrival.headers == (("x-user-id", "shop"),)
    assert arrival.properties is None


def test_receive_a_dead_lettered_message_names_its_origin(
    rabbitmq_url: str, channel: Any, make: Callable[[], str]
) -> None:
    intake, work = make(), f"fidelity-{secrets.token_hex(6)}"
    back = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": intake}
    channel.queue_declare(work, arguments=back, auto_delete=True)
    channel.basic_publish("", work, b"body", pika.BasicProperties(headers={"a": "b"}))
    method, _, _ = channel.basic_get(work)
    channel.basic_reject(method.delivery_tag, requeue=False)
    arrival = arrived(rabbitmq_url, intake)
    channel.queue_delete(work)
    assert arrival.origin == work
    names = {name for name, _ in arrival.headers}
    assert "x-death" not in names
    assert "a" in names


@pytest.mark.parametrize(
    ("queues", "origin"), [(["q", "work"], "work"), (["work", "q"], "work"), (["q"], ""), ([], "")]
)
def test_receive_what_expired_in_our_queue_names_the_one_before(
    queues: list[str], origin: str
) -> None:
    deaths = {"x-death": [{"queue": name} for name in queues]}
    properties = b"".join(pika.BasicProperties(headers=deaths).encode())
    raw = RawMessage(1, b"key", pack(">HHQ", 60, 0, 0) + properties, b"")
    reader = Reader(SourcePlan("i", "billing", {"queue": "q"}), "bridge", log="")
    assert reader.arrival(raw, None).origin == origin


def test_receive_again_from_a_quorum_queue_is_the_same_message(
    rabbitmq_url: str, channel: Any
) -> None:
    """The queue counts deliveries in a header."""
    queue = f"fidelity-{secrets.token_hex(6)}"
    channel.queue_declare(queue, durable=True, arguments={"x-queue-type": "quorum"})
    channel.basic_publish("", queue, b"body", pika.BasicProperties(headers={"a": "b"}))
    plan = SourcePlan("intake", "billing", {"queue": queue})
    seen = []
    for _ in range(3):
        with closing(open_source({"url": rabbitmq_url}, plan, Memory())) as source:
            (arrival,) = received(source)
            seen.append(arrival.headers)
    channel.queue_delete(queue)
    assert seen == [(("a", "b"),)] * 3


def test_decode_a_damaged_table_leaves_it_to_be_refused() -> None:
    """RabbitMQ passes none on; without its headers it would be due at once."""
    for content in (b"\1x", b"\1xZ", b"\1xS\0\0\0\7abc", b"\1xl\0", b"\7x"):
        header = pack(">HHQHI", 60, 0, 0, HEADERS, len(content)) + content
        assert decode(header).headers == {"x-delay": content}


def test_decode_names_and_properties_that_are_no_text_stay_sendable() -> None:
    content = named(b"\xff" * 255, b"V") + named(b"a", b"t\1") + named(b"a", b"t\0")
    header = pack(">HHQHBcI", 60, 0, 0, HEADERS | 1 << 15, 1, b"\xff", len(content)) + content
    found = decode(header)
    assert found.headers == {"?" * 255: None, "a": True}
    assert found.fields == {"content_type": "?"}


DAMAGED = [
    b"",
    b"Z",
    b"s\0",
    b"s\0\1\2",
    b"S\0\0\0\4abc",
    sized(b"F", b"\1"),
    b"d" + pack(">d", NAN),
]


@pytest.mark.parametrize("data", DAMAGED)
def test_new_envelope_with_a_damaged_field_is_refused(data: bytes) -> None:
    """RabbitMQ would end the connection of the worker that sends it."""
    with pytest.raises(EnvelopeError, match="header 'x'"):
        Envelope.new(b"body", delay="1s", headers={"x": Ext(AMQP_FIELD, data)})


SHOWN = [
    ("int64 that fits into 32 bits", {"amqp": "l", "value": 5000}, b"5000"),
    ("double", {"amqp": "d", "value": 1.1}, b"1.1"),
    ("decimal", {"amqp": "D", "value": "1.50"}, b'"1.50"'),
    ("timestamp", {"amqp": "T", "value": 1_800_000_000}, b"1800000000"),
    ("table", {"amqp": "F", "value": {"a": None, "b": 1}}, b'{"a":null,"b":1}'),
    ("array", {"amqp": "A", "value": [None, True, "x", {}]}, b'[null,true,"x",{}]'),
    ("text that is no UTF-8", {"amqp": "S", "value": {"base64": "//4="}}, b"\xff\xfe"),
]


@pytest.mark.parametrize(("name", "shown", "on_kafka"), SHOWN)
def test_show_a_field_says_its_type_and_value(name: str, shown: object, on_kafka: bytes) -> None:
    wire, _ = FIELDS[name]
    content = named(b"x", wire)
    value: Any = decode(pack(">HHQHI", 60, 0, 0, HEADERS, len(content)) + content).headers["x"]
    assert shown_field(value) == json_value(value) == shown
    assert field_bytes(value) == on_kafka
    assert plain_headers((("x", value),), None) == [("x", on_kafka)]
