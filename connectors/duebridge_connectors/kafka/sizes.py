"""Checks the size of a record before it is stored, by the client's own limit. Imports no client."""

from collections.abc import Mapping

from duebridge.envelope import Envelope, Headers
from duebridge.errors import EnvelopeError
from duebridge.ports.broker import MAX_MESSAGE_HEADER_BYTES
from duebridge.sizes import header_bytes
from duebridge_connectors.kafka.headers import property_headers

OPTION = "max.request.size"
DEFAULT_BYTES = 1_048_576  # of both clients
RECORD_BYTES = 100  # of a record and its batch beside key, value and headers, at most
LENGTHS_BYTES = 5  # of a header's name and value


def check_size(envelope: Envelope, headers: Headers, settings: Mapping[str, object]) -> None:
    """Raise `EnvelopeError` for a record that the client would refuse as too large."""
    limit = _limit_bytes(settings)
    content = len(envelope.body or b"") + len(envelope.key or b"")
    if limit is None or content + MAX_MESSAGE_HEADER_BYTES <= limit:
        return
    size = content + RECORD_BYTES + _header_bytes(envelope, headers)
    if size > limit:
        expected = f"expected a record of at most {limit} bytes with its headers ({OPTION})"
        raise EnvelopeError(f"body: {expected}; got {size}")


def _limit_bytes(settings: Mapping[str, object]) -> int | None:
    """Return the limit; None if a reference hides it, which only a worker resolves."""
    options = settings.get("options")
    given = options.get(OPTION) if isinstance(options, dict) else None
    if given is None:
        return DEFAULT_BYTES
    return int(given) if str(given).isdecimal() else None


def _header_bytes(envelope: Envelope, headers: Headers) -> int:
    content_type = envelope.properties.content_type or ""
    sent = (*headers, *property_headers(envelope.properties), ("content-type", content_type))
    return header_bytes(sent) + LENGTHS_BYTES * len(sent)
