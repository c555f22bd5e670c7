"""Headers on their way into Kafka's own form."""

import pytest

from duebridge.envelope import Headers, HeaderValue, Properties
from duebridge_connectors.kafka.headers import kafka_headers


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (b"\x00\xff", b"\x00\xff"),
        (b"", b""),
        ("grüße", "grüße".encode()),
        ("", b""),
        (0, b"0"),
        (-(2**63), b"-9223372036854775808"),
        (True, b"true"),
        (False, b"false"),
    ],
)
def test_convert_a_value_gives_its_bytes(value: HeaderValue, expected: bytes) -> None:
    assert kafka_headers((("name", value),), None) == [("name", expected)]


def test_convert_keeps_order_and_repeated_names() -> None:
    given: Headers = (("b", "1"), ("a", 2), ("b", "1"))
    assert kafka_headers(given, None) == [("b", b"1"), ("a", b"2"), ("b", b"1")]


def test_convert_gives_what_the_client_demands() -> None:
    headers = kafka_headers((("a", "1"), ("b", b"2")), Properties(content_type="x"))
    assert type(headers) is list
    assert all(type(pair) is tuple for pair in headers)


def test_convert_none_passes_the_clients_check_and_is_none_to_its_encoder() -> None:
    headers = kafka_headers((("a", None), ("b", b"2")), None)
    assert isinstance(headers, list)
    assert all(isinstance(pair[1], bytes) for pair in headers)
    assert [(name, value) for name, value in headers] == [("a", None), ("b", b"2")]


@pytest.mark.parametrize("own", ["content-type", "Content-Type"])
def test_convert_content_type_yields_to_the_users_own(own: str) -> None:
    headers = kafka_headers(((own, "text/plain"),), Properties(content_type="application/json"))
    assert headers == [(own, b"text/plain")]


def test_convert_content_type_comes_last() -> None:
    headers = kafka_headers((("a", "1"),), Properties(content_type="application/json"))
    assert headers == [("a", b"1"), ("content-type", b"application/json")]


def test_convert_text_that_utf8_cannot_carry_raises() -> None:
    with pytest.raises(UnicodeEncodeError):
        kafka_headers((("a", "\ud800"),), None)
