"""Checks an envelope, when it is scheduled, against all that it may end as.

envelope ─▶ its route's own limits ─▶ a delivery of the target's broker
                                   ─▶ a dead letter of the dead-letter target's broker
"""

from collections.abc import Mapping
from fnmatch import fnmatchcase
from functools import lru_cache

import msgspec

from duebridge.config.models import Config, Route
from duebridge.envelope import SHORT_BYTES, Envelope, Headers, Target
from duebridge.errors import EnvelopeError, did_you_mean
from duebridge.headers import RESERVED, RESERVED_PREFIX, longest_headers
from duebridge.ports.broker import BrokerType
from duebridge.ports.discovery import broker_type
from duebridge.sizes import header_bytes

MAX_HEADERS = 64
MAX_HEADER_BYTES = 32 * 1024  # of names and values: with the bridge's, half of an AMQP frame
_WILDCARDS = frozenset("*?[")


class EndBroker(msgspec.Struct, frozen=True):
    """A broker where an envelope may end, and the headers that the bridge adds on the way."""

    broker: str
    type: str
    settings: Mapping[str, object]
    """As the file has them, references unresolved."""
    added: Headers
    """With their longest values."""


class RouteLimits(msgspec.Struct, frozen=True):
    """What an envelope of a route may be. Made once a route, by `of`; Spark sends it to tasks."""

    route: Route
    delivery: EndBroker
    dead_letter: EndBroker | None

    @classmethod
    def of(cls, config: Config, route: Route) -> "RouteLimits":
        """Return the limits of a route of the configuration."""
        delivery, letter = longest_headers(route.name, _longest_target(route))
        after = route.dead_letter
        return cls(
            route,
            _end(config, route.target.broker, delivery),
            None if after is None else _end(config, after.broker, letter),
        )

    def check(self, envelope: Envelope) -> None:
        """Raise `EnvelopeError` if an envelope could be neither delivered nor a dead letter."""
        size = len(envelope.body or b"")
        if size > self.route.max_body:
            raise EnvelopeError(f"body: expected at most {self.route.max_body} bytes; got {size}")
        _check_headers(envelope.headers)
        if envelope.target is not None:
            _check_target(envelope.target, self.route, broker_type(self.delivery.type))
        self.check_by_brokers(envelope)

    def check_by_brokers(self, envelope: Envelope) -> None:
        """Check by the broker types alone, as `check` does last, and Spark for simple rows."""
        end = self.delivery
        headers = envelope.headers + end.added
        broker_type(end.type).check_envelope(envelope, headers, end.settings)
        if self.dead_letter is not None:
            _check_dead_letter(envelope, self.dead_letter)


def _check_dead_letter(envelope: Envelope, end: EndBroker) -> None:
    headers = envelope.headers + end.added
    try:
        broker_type(end.type).check_dead_letter(envelope, headers, end.settings)
    except EnvelopeError as error:
        where = f"its dead letter would go to broker {end.broker!r}"
        raise EnvelopeError(f"{error} ({where})") from error


def _end(config: Config, broker: str, added: Headers) -> EndBroker:
    settings = config.brokers[broker]
    return EndBroker(broker, settings.type, settings.model_dump(), added)


def _longest_target(route: Route) -> Target:
    """Return a target whose text is as long as that of any target of the route."""
    if not route.allow_targets:
        return route.target
    given = route.target.as_dict()
    return Target(**{**dict.fromkeys(given, "x" * SHORT_BYTES), "broker": route.target.broker})


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


def _check_headers(headers: Headers) -> None:
    if len(headers) > MAX_HEADERS:
        raise EnvelopeError(f"headers: expected at most {MAX_HEADERS}; got {len(headers)}")
    for name, _ in headers:
        if _is_ours(name):
            raise EnvelopeError(f"header {name!r}: expected a name that duebridge does not set")
    if (size := header_bytes(headers)) > MAX_HEADER_BYTES:
        raise EnvelopeError(f"headers: expected at most {MAX_HEADER_BYTES} bytes; got {size}")


@lru_cache(maxsize=4096)  # the names recur
def _is_ours(name: str) -> bool:
    lower = name.lower()
    return lower in RESERVED or lower.startswith(RESERVED_PREFIX)


def _check_target(target: Target, route: Route, kind: BrokerType) -> None:
    known = kind.target.model_fields
    for name in target.as_dict():
        if name not in known:
            close = did_you_mean(name, known) or f", expected one of {', '.join(known)}"
            raise EnvelopeError(f"target.{name}: unknown field{close}")
    if not permits(route, target):
        raise EnvelopeError(
            f"target: expected one that allow_targets of route {route.name!r} permits; got {target}"
        )


def permits(route: Route, target: Target) -> bool:
    """Whether an envelope of a route may have a target of its own: this one."""
    return any(_matches(target, allowed) for allowed in route.allow_targets)


def _matches(target: Target, allowed: Target) -> bool:
    given, patterns = dict(target.fields), dict(allowed.fields)
    return (
        target.broker == allowed.broker
        and given.keys() == patterns.keys()
        and all(fnmatchcase(given[name], patterns[name]) for name in given)
    )


def is_glob(pattern: str) -> bool:
    """Whether a value of `allow_targets` stands for more than itself."""
    return not _WILDCARDS.isdisjoint(pattern)
