"""Frames, properties and headers are the bytes that pika would write."""

import inspect

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pika import BasicProperties, spec
from pika.adapters.select_connection import SelectConnection
from pika.exceptions import InvalidFrameError
from pika.frame import Body, Header, Method

from duebridge.envelope import Headers, Properties, Target
from duebridge.ports.publisher import Delivery
from duebridge_connectors.rabbitmq.errors import Unencodable
from duebridge_connectors.rabbitmq.publishing.batch import PendingMessage, PublishBatch
from duebridge_connectors.rabbitmq.publishing.connection import PublishConnection
from duebridge_connectors.rabbitmq.publishing.encoding import (
    BUFFER_BYTES,
    buffers,
    header_payload,
    is_risky,
    publish_payload,
)

TARGET = Target("rabbitmq", exchange="e", routing_key="k")
short = st.text(st.characters(exclude_categories=["Cs"]), max_size=60)
values = (
    st.binary(max_size=300)
    | st.text(st.characters(exclude_categories=["Cs"]), max_size=300)
    | st.integers(-(2**63), 2**63 - 1)
    | st.sampled_from([-(2**31) - 1, -(2**31), 2**31 - 1, 2**31])
    | st.booleans()
    | st.none()
)
headers_given = st.dictionaries(short, values, max_size=6).map(lambda d: tuple(d.items()))
NUMBERS = {"priority", "timestamp"}
properties_given = st.builds(
    Properties,
    **{name: st.none() | short for name in sorted(set(Properties.__struct_fields__) - NUMBERS)},
    priority=st.none() | st.integers(0, 255),
    timestamp=st.none() | st.integers(0, 2**64 - 1),
)


def message(headers: Headers = (), properties: Properties | None = None) -> Delivery:
    return Delivery("id-1", TARGET, b"body", None, headers, properties)


def header_by_pika(delivery: Delivery, size: int, channel: int = 1) -> bytes:
    known = delivery.properties or Properties()
    named = {name: getattr(known, name) for name in Properties.__struct_fields__}
    properties = BasicProperties(
        headers=dict(delivery.headers) or None, delivery_mode=2, message_id=delivery.id, **named
    )
    frame: bytes = Header(channel, size, properties).marshal()
    return frame


@given(headers_given, st.none() | properties_given, st.integers(0, 2**40))
def test_encode_anything_writes_the_bytes_of_pika(
    headers: Headers, properties: Properties | None, size: int
) -> None:
    delivery = message(headers, properties)
    assert header_payload(delivery, size) == header_by_pika(delivery, size)[7:-1]


@pytest.mark.parametrize(
    "bad",
    [
        message((("a", "1"), ("a", "2"))),
        message((("n" * 256, "1"),)),
        message((("ü" * 128, "1"),)),
        message((("a", "\ud800"),)),
        message((("a", 2**63),)),
        message((("a", 1.5),)),  # type: ignore[arg-type]
        message(properties=Properties(app_id="x" * 256)),
        message(properties=Properties(priority=256)),
        message(properties=Properties(priority=-1)),
        message(properties=Properties(timestamp=-1)),
        message(properties=Properties(timestamp=2**64)),
    ],
)
def test_encode_what_amqp_cannot_carry_is_refused(bad: Delivery) -> None:
    with pytest.raises(Unencodable):
        header_payload(bad, 0)


@pytest.mark.parametrize(
    ("delivery", "expected"),
    [
        (message(), False),
        (message((("cc", "x"), ("x", 1))), False),
        (message((("x", 1), ("CC", "x"))), True),
        (message((("BCC", None),)), True),
        (message(properties=Properties(user_id="guest")), False),
        (message(properties=Properties(user_id="other")), True),
        (message(properties=Properties(expiration="0")), False),
        (message(properties=Properties(expiration="4294967295")), False),
        (message(properties=Properties(expiration="4294967296")), True),
        (message(properties=Properties(expiration="-1")), True),
        (message(properties=Properties(expiration="")), True),
        (message(properties=Properties(expiration="٣")), True),
        (message(properties=Properties(reply_to="answers")), False),
        (message(properties=Properties(reply_to="amq.rabbitmq.reply-to")), True),
    ],
)
def test_look_for_risk_finds_what_rabbitmq_may_close_the_channel_for(
    delivery: Delivery, expected: bool
) -> None:
    assert is_risky(delivery, "guest") is expected


def test_look_for_risk_without_a_user_name_takes_any_user_id_for_one() -> None:
    assert is_risky(message(properties=Properties(user_id="guest")), None)


def pending(body: bytes, exchange: str = "e", routing_key: str = "k") -> PendingMessage:
    header = header_payload(message(), len(body))
    method = publish_payload(exchange, routing_key)
    return PendingMessage(PublishBatch(1), 0, "id-1", routing_key, method, header, body, False)


def frames_by_pika(body: bytes, exchange: str, key: str, channel: int, frame_max: int) -> bytes:
    method = spec.Basic.Publish(exchange=exchange, routing_key=key, mandatory=True)
    size = frame_max - 8
    pieces = [body[start : start + size] for start in range(0, len(body), size)]
    bodies = b"".join(Body(channel, piece).marshal() for piece in pieces)
    first: bytes = Method(channel, method).marshal()
    return first + header_by_pika(message(), len(body), channel) + bodies


@given(st.binary(max_size=9000), st.text("eé", max_size=9), st.integers(1, 65535))
def test_write_a_message_gives_the_bytes_of_pika(body: bytes, name: str, channel: int) -> None:
    written = b"".join(buffers([pending(body, name, name)], channel, 4096))
    assert written == frames_by_pika(body, name, name, channel, 4096)


@pytest.mark.parametrize("frame_max", [4096, 131072, 0])
def test_write_many_and_large_keeps_order_in_buffers_of_bounded_size(frame_max: int) -> None:
    sent = [pending(bytes([n]) * size) for n, size in enumerate([0, 1, 10**6, 300, 200_000, 0])]
    written = list(buffers(sent, 7, frame_max))
    expected_max = frame_max or BUFFER_BYTES + 8
    expected = [frames_by_pika(p.body, "e", "k", 7, expected_max) for p in sent]
    assert b"".join(written) == b"".join(expected)
    assert max(map(len, written)) < BUFFER_BYTES + max(frame_max, BUFFER_BYTES) + 1000


def test_write_nothing_gives_no_buffer() -> None:
    assert list(buffers([], 1, 4096)) == []


def test_write_a_routing_key_of_255_bytes_is_the_limit() -> None:
    publish_payload("", "ü" * 127 + "k")
    with pytest.raises(Unencodable, match="256"):
        publish_payload("", "ü" * 128)


def test_borrow_from_pika_finds_its_names_unchanged() -> None:
    emit = inspect.signature(SelectConnection._output_marshaled_frames)
    assert list(emit.parameters) == ["self", "marshaled_frames"]
    assert list(inspect.signature(SelectConnection._terminate_stream).parameters) == [
        "self",
        "error",
    ]
    assert list(inspect.signature(SelectConnection._read_frame).parameters) == ["self"]


def frame_of(data: bytes) -> tuple[int, Header | None]:
    connection = object.__new__(PublishConnection)
    connection._frame_buffer = data
    return connection._read_frame()


@given(headers_given, st.none() | properties_given, st.integers(0, 2**40), st.integers(1, 65535))
def test_read_a_returned_content_header_gives_its_size_and_id_once_it_is_whole(
    headers: Headers, properties: Properties | None, size: int, channel: int
) -> None:
    data = header_by_pika(message(headers, properties), size, channel)
    used, frame = frame_of(data + b"more")
    assert frame is not None
    assert (used, frame.channel_number, frame.body_size) == (len(data), channel, size)
    assert vars(frame.properties) == vars(BasicProperties(message_id="id-1"))
    assert {frame_of(data[:cut]) for cut in range(len(data))} == {(0, None)}


def test_read_a_content_header_without_a_frame_end_raises() -> None:
    with pytest.raises(InvalidFrameError):
        frame_of(header_by_pika(message(), 1)[:-1] + b"?")
