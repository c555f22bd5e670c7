"""Our frames are pika's own frames, and pika still has the two names that we borrow."""

import inspect

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pika import BasicProperties, spec
from pika.adapters.select_connection import SelectConnection
from pika.frame import Body, Header, Method

from duebridge.envelope import Target
from duebridge.ports.publisher import Delivery
from duebridge_connectors.rabbitmq.batch import Batch, Parcel
from duebridge_connectors.rabbitmq.errors import Unencodable
from duebridge_connectors.rabbitmq.properties import header_payload
from duebridge_connectors.rabbitmq.wire import BUFFER_BYTES, buffers, publish_payload


def parcel(body: bytes, exchange: str = "e", routing_key: str = "k") -> Parcel:
    target = Target("rabbitmq", exchange=exchange, routing_key=routing_key)
    header = header_payload(Delivery("id", target, body), len(body))
    method = publish_payload(exchange, routing_key)
    return Parcel(Batch(1), 0, "id", routing_key, method, header, body, False)


def as_pika_writes_it(body: bytes, exchange: str, key: str, channel: int, frame_max: int) -> bytes:
    method = spec.Basic.Publish(exchange=exchange, routing_key=key, mandatory=True)
    properties = BasicProperties(delivery_mode=2, message_id="id")
    size = frame_max - 8
    pieces = [body[start : start + size] for start in range(0, len(body), size)]
    frames = [
        Method(channel, method),
        Header(channel, len(body), properties),
        *(Body(channel, piece) for piece in pieces),
    ]
    return b"".join(frame.marshal() for frame in frames)


@given(st.binary(max_size=9000), st.text("eé", max_size=9), st.integers(1, 65535))
def test_write_a_message_gives_the_bytes_of_pika(body: bytes, name: str, channel: int) -> None:
    written = b"".join(buffers([parcel(body, name, name)], channel, 4096))
    assert written == as_pika_writes_it(body, name, name, channel, 4096)


@pytest.mark.parametrize("frame_max", [4096, 131072, 0])
def test_write_many_and_large_keeps_order_in_buffers_of_bounded_size(frame_max: int) -> None:
    sent = [parcel(bytes([n]) * size) for n, size in enumerate([0, 1, 10**6, 300, 200_000, 0])]
    written = list(buffers(sent, 7, frame_max))
    expected_max = frame_max or BUFFER_BYTES + 8
    expected = [as_pika_writes_it(p.body, "e", "k", 7, expected_max) for p in sent]
    assert b"".join(written) == b"".join(expected)
    assert max(map(len, written)) < BUFFER_BYTES + max(frame_max, BUFFER_BYTES) + 1000


def test_write_nothing_gives_no_buffer() -> None:
    assert list(buffers([], 1, 4096)) == []


def test_write_a_routing_key_of_255_bytes_is_the_limit() -> None:
    publish_payload("", "ü" * 127 + "k")
    with pytest.raises(Unencodable, match="256"):
        publish_payload("", "ü" * 128)


def test_borrow_from_pika_finds_both_names_unchanged() -> None:
    emit = inspect.signature(SelectConnection._output_marshaled_frames)
    assert list(emit.parameters) == ["self", "marshaled_frames"]
    assert list(inspect.signature(SelectConnection._terminate_stream).parameters) == [
        "self",
        "error",
    ]
