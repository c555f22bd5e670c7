"""Headers as Kafka carries them: text and bytes, in order, names repeated where they were."""

from typing import SupportsIndex

from duebridge.envelope import Headers, HeaderValue, Properties

CONTENT_TYPE = "content-type"

KafkaHeader = tuple[str, bytes | None]


def kafka_headers(headers: Headers, properties: Properties | None) -> list[KafkaHeader]:
    """Return `plain_headers` in the form that `KafkaProducer.send` takes."""
    pairs = plain_headers(headers, properties)
    for _, value in pairs:
        if value is None:
            return _WithNulls(pair if pair[1] is not None else _Null(pair) for pair in pairs)
    return pairs


def plain_headers(headers: Headers, properties: Properties | None) -> list[KafkaHeader]:
    """Return headers as pairs of name and bytes, or None, in the order given.

    Bytes stay as they are, text becomes UTF-8, an int its ASCII digits, a bool `true` or `false`,
    and None a null. Of the properties only `content_type` exists on Kafka, as the header
    `content-type`, unless the headers have one.

    Raises UnicodeEncodeError for text that UTF-8 cannot carry.
    """
    # The usual type is told apart right here: this runs for every header of every message.
    pairs = [
        (name, value.encode() if type(value) is str else _as_bytes(value))
        for name, value in headers
    ]
    if properties is not None and properties.content_type is not None:
        _set_default(pairs, CONTENT_TYPE, properties.content_type.encode())
    return pairs


def _as_bytes(value: HeaderValue) -> bytes | None:
    if value is None or isinstance(value, bytes):
        return value
    if isinstance(value, bool):
        return b"true" if value else b"false"
    return str(value).encode()


def _set_default(pairs: list[KafkaHeader], name: str, value: bytes) -> None:
    if not any(given.lower() == name for given, _ in pairs):
        pairs.append((name, value))


# Kafka and kafka-python's encoder know null header values; `KafkaProducer.send` refuses them, and
# its producer batch adds up their lengths, which None has not. These two types pass both: the check
# indexes a pair where the encoder unpacks it, and a false list is not added up.


class _Null(tuple[str, bytes | None]):
    """A name and None that shows an empty value to whoever indexes it."""

    __slots__ = ()

    def __getitem__(self, index: SupportsIndex | slice) -> object:  # type: ignore[override]
        return b"" if index == 1 else super().__getitem__(index)


class _WithNulls(list[KafkaHeader]):
    """Headers with a `_Null` among them, false though there are some."""

    def __bool__(self) -> bool:
        return False
