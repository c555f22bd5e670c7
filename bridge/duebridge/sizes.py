"""The bytes that an envelope's headers take: of limits, of batches and of brokers' messages."""

from msgspec.msgpack import Ext

from duebridge.envelope import Headers, HeaderValue

OTHER_VALUE_BYTES = 20  # of a header that is neither text nor bytes, at most


def header_bytes(headers: Headers) -> int:
    """Return the bytes of names and values, at most; a protocol adds lengths of its own."""
    size = 0
    for name, value in headers:  # of every message: no call for what is most frequent
        size += len(name) if name.isascii() else len(name.encode())
        if isinstance(value, bytes) or (isinstance(value, str) and value.isascii()):
            size += len(value)
        else:
            size += _value_bytes(value)
    return size


def _value_bytes(value: HeaderValue) -> int:
    if isinstance(value, str):
        return len(value.encode())
    if isinstance(value, Ext):
        return max(OTHER_VALUE_BYTES, len(bytes(value.data)))
    return OTHER_VALUE_BYTES
