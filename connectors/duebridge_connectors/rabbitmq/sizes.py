"""Checks, before a message is stored, that its headers fit AMQP's one frame for them.

Imports no client.
"""

from collections.abc import Mapping

from duebridge.envelope import Envelope, Headers
from duebridge.errors import EnvelopeError
from duebridge.ports.broker import MAX_MESSAGE_HEADER_BYTES
from duebridge.sizes import header_bytes

KEY_HEADER = "x-dlq-key"  # of a dead letter whose envelope had a key
DEFAULT_FRAME_BYTES = 131_072  # of RabbitMQ and pika
ANY_BYTES = MAX_MESSAGE_HEADER_BYTES + 4_096  # with lengths and properties: enough without a key
FIXED_BYTES = 64  # of a frame without properties and headers, and to name what `letters` moves
LENGTHS_BYTES = 6  # of a header: its name's length, its type, its value's length


def check_frame(envelope: Envelope, headers: Headers, settings: Mapping[str, object]) -> None:
    """Raise `EnvelopeError` for headers and properties that exceed one frame."""
    limit = _frame_bytes(settings)
    if envelope.key is not None:
        headers = (*headers, (KEY_HEADER, envelope.key))
    elif limit >= ANY_BYTES:
        return
    size = FIXED_BYTES + header_bytes(headers) + LENGTHS_BYTES * len(headers)
    size += len(envelope.id.encode()) + _property_bytes(envelope)
    if size > limit:
        named = "headers, key" if envelope.key is not None else "headers"
        expected = f"expected at most {limit} bytes of headers and properties, one AMQP frame"
        raise EnvelopeError(f"{named}: {expected}; got {size}")


def _frame_bytes(settings: Mapping[str, object]) -> int:
    options = settings.get("options")
    given = options.get("frame_max") if isinstance(options, dict) else None
    if given is None or not str(given).isdecimal():  # a reference, which only a worker resolves
        return DEFAULT_FRAME_BYTES
    return min(int(given) or DEFAULT_FRAME_BYTES, DEFAULT_FRAME_BYTES)  # 0 is the server's limit


def _property_bytes(envelope: Envelope) -> int:
    properties = envelope.properties
    values = (getattr(properties, name) for name in properties.__struct_fields__)
    return sum(1 + max(8, len(str(value).encode())) for value in values if value is not None)
