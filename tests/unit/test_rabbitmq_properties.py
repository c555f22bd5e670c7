"""Properties and headers are written as pika would write them; what AMQP lacks is refused."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pika import BasicProperties
from pika.frame import Header, decode_frame

from duebridge.envelope import Headers, Properties, Target
from duebridge.ports.publisher import Delivery
from duebridge_connectors.rabbitmq.errors import Unencodable
from duebridge_connectors.rabbitmq.properties import header_payload
from duebridge_connectors.rabbitmq.risk import is_risky

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
TEXTS = (
    "content_type",
    "content_encoding",
    "correlation_id",
    "reply_to",
    "type",
    "app_id",
    "user_id",
    "expiration",
)
properties_given = st.builds(
    Properties,
    **{name: st.none() | short for name in TEXTS},
    priority=st.none() | st.integers(0, 255),
    timestamp=st.none() | st.integers(0, 2**64 - 1),
)


def message(headers: Headers = (), properties: Properties | None = None) -> Delivery:
    return Delivery("id-1", TARGET, b"body", None, headers, properties)


def as_pika_writes_it(delivery: Delivery, size: int) -> bytes:
    known = delivery.properties or Properties()
    named = {name: getattr(known, name) for name in Properties.__struct_fields__}
    properties = BasicProperties(
        headers=dict(delivery.headers) or None,
        delivery_mode=2,
        message_id=delivery.id,
        **named,
    )
    frame: bytes = Header(1, size, properties).marshal()
    return frame[7:-1]


@given(headers_given, st.none() | properties_given, st.integers(0, 2**40))
def test_encode_anything_writes_the_bytes_of_pika(
    headers: Headers, properties: Properties | None, size: int
) -> None:
    delivery = message(headers, properties)
    assert header_payload(delivery, size) == as_pika_writes_it(delivery, size)


def test_encode_each_header_type_reads_back_the_same() -> None:
    headers: Headers = (("a", b"\xff"), ("b", "ü"), ("c", 2**40), ("d", True), ("e", None))
    payload = header_payload(message(headers), 0)
    frame = b"\2\0\1" + len(payload).to_bytes(4, "big") + payload + b"\xce"
    assert decode_frame(frame)[1].properties.headers == dict(headers)  # type: ignore[union-attr]


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
