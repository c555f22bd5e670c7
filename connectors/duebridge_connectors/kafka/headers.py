"""Encodes headers for Kafka; keeps their order and repeated names."""

from typing import SupportsIndex

from msgspec.msgpack import Ext

from duebridge.amqp_fields import field_bytes
from duebridge.envelope import NO_PROPERTIES, Headers, HeaderValue, Properties

CONTENT_TYPE = "content-type"

KafkaHeader = tuple[str, bytes | None]


def kafka_headers(headers: Headers, properties: Properties | None) -> list[KafkaHeader]:
    """Return `plain_headers` in a form that `KafkaProducer.send` accepts."""
    pairs = plain_headers(headers, properties)
    for _, value in pairs:
        if value is None:
            return _NullHeaders(pair if pair[1] is not None else _Null(pair) for pair in pairs)
    return pairs


def plain_headers(headers: Headers, properties: Properties | None) -> list[KafkaHeader]:
    """Return headers as pairs of a name and bytes or None, in order.

    Text is encoded as UTF-8, an int as ASCII digits, a bool as `true` or `false`, another value of
    AMQP as JSON; bytes and None are unchanged. `content_type` becomes the header `content-type`,
    unless there is one; other properties, which only a dead letter has here, become headers
    `x-dlq-*`.

    Raises `UnicodeEncodeError` for text that UTF-8 cannot encode.
    """
    # Strings are handled inline: this runs for every header of every message.
    pairs = [
        (name, value.encode() if type(value) is str else _as_bytes(value))
        for name, value in headers
    ]
    if properties is None:
        return pairs
    if properties.content_type is not None:
        _set_default(pairs, CONTENT_TYPE, properties.content_type.encode())
    pairs += [(name, value.encode()) for name, value in property_headers(properties)]
    return pairs


def lacking_properties(properties: Properties) -> list[str]:
    """Return the names of the properties that Kafka lacks: all but `content_type`."""
    if properties == NO_PROPERTIES:  # as almost always, and Spark asks about every row
        return []
    names = (name for name in properties.__struct_fields__ if name != "content_type")
    return [name for name in names if getattr(properties, name) is not None]


def property_headers(properties: Properties) -> tuple[tuple[str, str], ...]:
    """Return the properties that Kafka lacks as headers of a dead letter: `x-dlq-reply-to`."""
    return tuple(
        (f"x-dlq-{name.replace('_', '-')}", str(getattr(properties, name)))
        for name in lacking_properties(properties)
    )


def _as_bytes(value: HeaderValue) -> bytes | None:
    if value is None or isinstance(value, bytes):
        return value
    if isinstance(value, bool):
        return b"true" if value else b"false"
    return field_bytes(value) if isinstance(value, Ext) else str(value).encode()


def _set_default(pairs: list[KafkaHeader], name: str, value: bytes) -> None:
    if not any(given.lower() == name for given, _ in pairs):
        pairs.append((name, value))


# Kafka and kafka-python's encoder support null header values, but `KafkaProducer.send` rejects them
# and its producer batch sums their lengths. These two types pass both checks: `send` indexes a pair
# while the encoder unpacks it, and the batch skips a falsy list.


class _Null(tuple[str, bytes | None]):
    """A pair of a name and None whose index 1 returns empty bytes."""

    __slots__ = ()

    def __getitem__(self, index: SupportsIndex | slice) -> object:  # type: ignore[override]
        return b"" if index == 1 else super().__getitem__(index)


class _NullHeaders(list[KafkaHeader]):
    """A non-empty list of headers that is falsy."""

    def __bool__(self) -> bool:
        return False
