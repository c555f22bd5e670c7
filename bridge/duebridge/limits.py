"""Checks an envelope against the limits of its route and broker when it is scheduled."""

from fnmatch import fnmatchcase

import msgspec

from duebridge.config.models import Route
from duebridge.envelope import Envelope, Target
from duebridge.errors import EnvelopeError
from duebridge.headers import RESERVED, RESERVED_PREFIX
from duebridge.ports.broker import BrokerType
from duebridge.ports.discovery import broker_type
from duebridge.ports.settings import did_you_mean

MAX_HEADERS = 64
MAX_HEADER_BYTES = 32 * 1024  # names and values; must fit one AMQP frame with the bridge's


def check_envelope(envelope: Envelope, route: Route, kind: str) -> None:
    """Raise `EnvelopeError` if the route, or its broker of type `kind`, cannot carry it."""
    size = len(envelope.body or b"")
    if size > route.max_body:
        raise EnvelopeError(f"body: expected at most {route.max_body} bytes; got {size}")
    _check_headers(envelope)
    found = broker_type(kind)
    if envelope.target is not None:
        _check_target(envelope.target, route, found)
    found.check_envelope(envelope)


def with_whole_target(envelope: Envelope, route: Route) -> Envelope:
    """Return the envelope with missing fields of its target filled in from the route's target.

    A target may thus override only the routing key. A target with other fields is unchanged.
    """
    if envelope.target is None:
        return envelope
    given, whole = envelope.target.as_dict(), route.target.as_dict()
    if given.keys() >= whole.keys() or not given.keys() <= whole.keys():
        return envelope
    return msgspec.structs.replace(envelope, target=Target(**{**whole, **given}))


def _check_headers(envelope: Envelope) -> None:
    if len(envelope.headers) > MAX_HEADERS:
        raise EnvelopeError(f"headers: expected at most {MAX_HEADERS}; got {len(envelope.headers)}")
    size = 0
    for name, value in envelope.headers:
        lower = name.lower()
        if lower in RESERVED or lower.startswith(RESERVED_PREFIX):
            raise EnvelopeError(f"header {name!r}: expected a name that duebridge does not set")
        text = value.encode(errors="replace") if isinstance(value, str) else value
        size += len(name.encode()) + (len(text) if isinstance(text, bytes) else 8)
    if size > MAX_HEADER_BYTES:
        raise EnvelopeError(f"headers: expected at most {MAX_HEADER_BYTES} bytes; got {size}")


def _check_target(target: Target, route: Route, kind: BrokerType) -> None:
    known = kind.target.model_fields
    for name in target.as_dict():
        if name not in known:
            close = did_you_mean(name, known) or f", expected one of {', '.join(known)}"
            raise EnvelopeError(f"target.{name}: unknown field{close}")
    if not any(_matches(target, allowed) for allowed in route.allow_targets):
        raise EnvelopeError(
            f"target: expected one that allow_targets of route {route.name!r} permits; got {target}"
        )


def _matches(target: Target, allowed: Target) -> bool:
    given, patterns = dict(target.fields), dict(allowed.fields)
    return (
        target.broker == allowed.broker
        and given.keys() == patterns.keys()
        and all(fnmatchcase(given[name], patterns[name]) for name in given)
    )
