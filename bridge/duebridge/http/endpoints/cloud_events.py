"""CloudEvents 1.0 over HTTP, binary and structured, as envelopes.

The extension `delay` or `deliverat` says when the event is due. Its other attributes travel as the
type of the route's broker has them: headers `ce_NAME` on Kafka, `cloudEvents:NAME` on AMQP; the
event's `datacontenttype` is the content type, on Kafka its `partitionkey` the key.
"""

import base64
import binascii
import re
from collections.abc import Mapping
from hashlib import blake2b
from urllib.parse import unquote

import msgspec
from starlette.datastructures import Headers
from starlette.requests import Request

from duebridge.envelope import JSON, SHORT_BYTES, Envelope
from duebridge.errors import EnvelopeError, shown
from duebridge.http.bodies import media_type
from duebridge.http.problems import ProblemError
from duebridge.instants import parse_at
from duebridge.ports.broker import BrokerType

BINARY = "binary"
STRUCTURED = "application/cloudevents+json"
OF_BINARY = "ce-"
BETWEEN = "|"  # no URI has it: source and id can be told apart
REQUIRED = ("id", "source", "type")
NOT_HEADERS = ("delay", "deliverat", "datacontenttype")
NULL = b"null"  # of an attribute: as if it were left out
_NAME = re.compile("[a-z0-9]{1,64}")


def is_binary(request: Request) -> bool:
    """Whether a request is an event whose attributes are its headers."""
    return f"{OF_BINARY}specversion" in request.headers and media_type(request) != STRUCTURED


def of_binary(headers: Headers, body: bytes, kind: BrokerType) -> Envelope:
    """Return the envelope of an event in binary mode; raises `EnvelopeError`."""
    found: dict[str, str] = {}
    for header, value in headers.items():
        name = header.removeprefix(OF_BINARY)
        if name == header:
            continue
        if name in found:
            raise EnvelopeError(f"{header}: expected one header of this name; got several")
        found[name] = _unquoted(header, value)
    if "content-type" in headers:
        found["datacontenttype"] = headers["content-type"]
    return _envelope(found, body, kind)


def _unquoted(header: str, value: str) -> str:
    try:
        return unquote(value, errors="strict")
    except UnicodeDecodeError as error:
        got = shown(value)
        raise EnvelopeError(f"{header}: expected percent-encoded UTF-8; got {got}") from error


def of_structured(body: bytes, kind: BrokerType) -> Envelope:
    """Return the envelope of an event in JSON; raises `EnvelopeError`, `ProblemError` 400."""
    try:
        given = msgspec.json.decode(body, type=dict[str, msgspec.Raw])
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ProblemError(400, "Bad request", f"expected an event as JSON: {error}") from error
    data = given.pop("data", None)
    set_ = {name: value for name, value in given.items() if bytes(value) != NULL}
    data_base64 = set_.pop("data_base64", None)
    found = {name: _attribute(name, value) for name, value in set_.items()}
    media = found.setdefault("datacontenttype", JSON)
    if data_base64 is not None:
        if data is not None and bytes(data) != NULL:
            raise EnvelopeError("data, data_base64: expected at most one of the two; got both")
        return _envelope(found, _decoded(data_base64), kind)
    return _envelope(found, b"" if data is None else _data(bytes(data), media), kind)


def _attribute(name: str, raw: msgspec.Raw) -> str:
    expected = f"{shown(name)}: expected text, a whole number, true or false"
    try:
        value = msgspec.json.decode(raw)
        text = str(value)
    except ValueError as error:  # 1e400, text that is no UTF-8: found as the value is read
        raise EnvelopeError(f"{expected}: {error}") from error
    if isinstance(value, bool):
        return text.lower()
    if isinstance(value, str | int):
        return text
    raise EnvelopeError(expected)


def _data(raw: bytes, media: str) -> bytes:
    """Return the data: JSON as it stands; text of another type is its own characters."""
    is_json = media.partition(";")[0].strip().lower().endswith("json")
    try:
        if is_json or raw[:1] != b'"':
            raw.decode()  # no JSON parser reads another encoding
            return raw
        return msgspec.json.decode(raw, type=str).encode()
    except ValueError as error:
        raise EnvelopeError(f"data: expected text: {error}") from error


def _decoded(raw: msgspec.Raw) -> bytes:
    try:
        return base64.b64decode(msgspec.json.decode(raw, type=str), validate=True)
    except (msgspec.DecodeError, binascii.Error, ValueError) as error:
        raise EnvelopeError(f"data_base64: expected base64 with its padding: {error}") from error


def _envelope(found: Mapping[str, str], body: bytes, kind: BrokerType) -> Envelope:
    _check(found)
    delay, at = found.get("delay"), found.get("deliverat")
    if (delay is None) == (at is None):
        got = "neither" if delay is None else "both"
        raise EnvelopeError(f"delay, deliverat: expected exactly one of the two; got {got}")
    return Envelope.new(
        body,
        id=event_id(found["source"], found["id"]),
        delay=delay,
        at=None if at is None else parse_at(at, "deliverat"),
        key=found.get("partitionkey") if kind.has_keys else None,
        headers=[  # sorted: their order says nothing, and a repeated event may have another
            (kind.event_prefix + name, found[name])
            for name in sorted(found)
            if name not in NOT_HEADERS
        ],
        content_type=found.get("datacontenttype"),
    )


def _check(found: Mapping[str, str]) -> None:
    if found.get("specversion") != "1.0":
        raise EnvelopeError(f"specversion: expected 1.0; got {shown(found.get('specversion'))}")
    for name in REQUIRED:
        if not found.get(name):
            raise EnvelopeError(f"{name}: expected text, which every event has; got none")
    if BETWEEN in found["source"]:
        raise EnvelopeError(f"source: expected a URI; got {shown(found['source'])}")
    for name in found:
        if not _NAME.fullmatch(name):
            raise EnvelopeError(f"{shown(name)}: expected small letters and digits as a name")


def event_id(source: str, id_: str) -> str:
    """Return the id of an event's envelope: its source and id, or their hash if they are long.

    >>> event_id("/orders", "42")
    '/orders|42'
    """
    whole = f"{source}{BETWEEN}{id_}"
    if len(whole.encode(errors="surrogatepass")) <= SHORT_BYTES:
        return whole
    return blake2b(whole.encode(errors="surrogatepass"), digest_size=32).hexdigest()
