"""What a route and its broker can carry: checked when scheduling, not only when it is due."""

from fnmatch import fnmatchcase

from duebridge.config.models import Route, TargetSettings
from duebridge.envelope import Envelope, Target
from duebridge.errors import EnvelopeError
from duebridge.headers import RESERVED, RESERVED_PREFIX

MAX_HEADERS = 64
MAX_HEADER_BYTES = 32 * 1024  # all names and values; AMQP's must fit in one frame beside ours
_KAFKA_PROPERTIES = {"content_type"}  # becomes the header content-type; Kafka has no properties


def check_envelope(envelope: Envelope, route: Route, broker_type: str) -> None:
    """Raise `EnvelopeError` where the route or its broker could not carry the envelope."""
    size = len(envelope.body or b"")
    if size > route.max_body:
        raise EnvelopeError(f"body: expected at most {route.max_body} bytes; got {size}")
    _check_headers(envelope)
    if envelope.target is not None:
        _check_target(envelope.target, route)
    if broker_type == "rabbitmq":
        _check_amqp(envelope)
    elif broker_type == "kafka":
        _check_kafka(envelope)


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


def _check_target(target: Target, route: Route) -> None:
    if any(_matches(target, allowed) for allowed in route.allow_targets):
        return
    raise EnvelopeError(
        f"target: expected one that allow_targets of route {route.name!r} permits; got {target}"
    )


def _matches(target: Target, allowed: TargetSettings) -> bool:
    given = (target.topic, target.exchange, target.routing_key)
    patterns = (allowed.topic, allowed.exchange, allowed.routing_key)
    return target.broker == allowed.broker and all(
        pattern == value if pattern is None or value is None else fnmatchcase(value, pattern)
        for value, pattern in zip(given, patterns, strict=True)
    )


def _check_amqp(envelope: Envelope) -> None:
    if envelope.body is None:
        raise EnvelopeError("body: expected bytes on a RabbitMQ route; got None")
    if envelope.key is not None:
        raise EnvelopeError(
            "key: expected none on a RabbitMQ route, whose messages have no key; use a target's"
            f" routing_key; got {envelope.key!r}"
        )
    names = [name for name, _ in envelope.headers]
    if len(set(names)) < len(names):
        raise EnvelopeError(f"headers: expected distinct names on a RabbitMQ route; got {names}")


def _check_kafka(envelope: Envelope) -> None:
    if envelope.body is None and envelope.key is None:
        raise EnvelopeError("body: expected a key beside a body of None, which deletes that key")
    given = {
        name
        for name in envelope.properties.__struct_fields__
        if getattr(envelope.properties, name) is not None
    }
    if extra := sorted(given - _KAFKA_PROPERTIES):
        raise EnvelopeError(
            f"properties: expected only content_type on a Kafka route; got {', '.join(extra)}"
        )
