"""Parses messages into requests by their headers and the rules of their intake. Pure.

Arrival ─▶ ScheduleRequest | CancelRequest | RefusedMessage
"""

from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Literal, TypeAlias

import msgspec

from duebridge.config.intakes import IntakeSettings
from duebridge.config.models import Config, Route
from duebridge.envelope import NO_PROPERTIES, Envelope, Instant, Target, random_id
from duebridge.errors import described, unlisted_name
from duebridge.intake import values
from duebridge.intake.headers import (
    ATTEMPT,
    CANCEL,
    DELAY,
    DELIVER_AT,
    DUE_AT,
    EPOCH,
    KEY,
    RETRY_AFTER,
    ROUTE,
    TIMES,
    TOPIC,
    IntakeHeaders,
    read_headers,
)
from duebridge.intake.ids import own_id, republished_id, sound_id, stored_id
from duebridge.intake.refused import MessageRefused
from duebridge.intake.rounds import Round, back_off, next_round, round_id
from duebridge.ports.discovery import broker_type
from duebridge.ports.publisher import Reason
from duebridge.ports.source import Arrival

DELIVERED = frozenset({ATTEMPT, DUE_AT})  # of what duebridge has delivered before
NOW = Instant(0, relative=True)
_READERS: Mapping[str, Callable[[str, object], Instant]] = {
    DELAY: values.delay,
    RETRY_AFTER: values.delay,
    DELIVER_AT: values.instant,
    EPOCH: values.instant_in_seconds,
}


class ScheduleRequest(msgspec.Struct, frozen=True, gc=False):
    """Schedule an envelope."""

    arrival: Arrival
    route: str
    envelope: Envelope


class CancelRequest(msgspec.Struct, frozen=True, gc=False):
    """Cancel the envelope of an id."""

    arrival: Arrival
    route: str
    id: str


class RefusedMessage(msgspec.Struct, frozen=True, gc=False):
    """A refused message, which goes to the intake's dead-letter target with the reason."""

    arrival: Arrival
    route: str
    reason: Reason
    text: str
    id: str = ""
    """Its envelope's, had it been taken; empty if that cannot be said."""


Request: TypeAlias = ScheduleRequest | CancelRequest | RefusedMessage


class Rules(msgspec.Struct, frozen=True):
    """The rules by which an intake reads its messages; rebuilt when the routes change."""

    route: Route
    routes: Mapping[str, Route]
    to: Literal["route", "origin", "declared"]
    is_replacing: bool
    named_target: Callable[[str], Target]

    @classmethod
    def of(cls, config: Config, intake: IntakeSettings) -> "Rules":
        """Return the rules of an intake of the configuration."""
        broker = intake.source.broker
        kind = broker_type(config.brokers[broker].type)
        return cls(
            route=config.routes[intake.route],
            routes=config.routes,
            to=intake.to,
            is_replacing=intake.on_conflict == "replace",
            named_target=lru_cache(1024)(lambda name: kind.named_target(broker, name)),
        )


def read_arrival(rules: Rules, arrival: Arrival) -> Request:
    """Parse a message into a request; never raises, since no message may block the next ones."""
    route, id_ = rules.route, ""
    if arrival.unreadable:
        return RefusedMessage(arrival, route.name, Reason.INVALID, arrival.unreadable)
    try:
        reading = read_headers(arrival.headers, is_retry=rules.to == "origin")
        id_ = _id(rules, arrival, reading)
        if reading.controls:
            route = _route(rules, reading)
            if CANCEL in reading.controls:
                return CancelRequest(arrival, route.name, _cancelled_id(arrival, reading))
        if rules.is_replacing and arrival.body is None and not reading.times:
            return CancelRequest(arrival, route.name, _own_id(arrival))
        return ScheduleRequest(arrival, route.name, _envelope(rules, route, arrival, reading, id_))
    except MessageRefused as refused:
        return RefusedMessage(arrival, route.name, refused.reason, str(refused), id_)
    except Exception as error:
        text = described(error)
        return RefusedMessage(arrival, route.name, Reason.INVALID, text, id_)


def _id(rules: Rules, arrival: Arrival, reading: IntakeHeaders) -> str:
    if rules.to == "origin":
        return round_id(arrival, reading)
    if arrival.place is None and not rules.is_replacing and reading.controls.keys() >= DELIVERED:
        due_at = values.text(DUE_AT, reading.controls[DUE_AT])
        return republished_id(arrival, due_at) if arrival.id else random_id()
    return stored_id(arrival, replace=rules.is_replacing)


def _route(rules: Rules, reading: IntakeHeaders) -> Route:
    """Return the route that x-route names; the one beside x-attempt is of a delivery, not asked."""
    if ROUTE not in reading.controls or ATTEMPT in reading.controls:
        return rules.route
    name = values.text(ROUTE, reading.controls[ROUTE])
    if name not in rules.routes:
        text = f"{ROUTE}: {unlisted_name(name, sorted(rules.routes))}"
        raise MessageRefused(text, Reason.UNROUTABLE)
    return rules.routes[name]


def _cancelled_id(arrival: Arrival, reading: IntakeHeaders) -> str:
    given = reading.controls[CANCEL]
    if given is True:
        return _own_id(arrival)
    name = values.text(CANCEL, given)
    return sound_id(name) if name and name != "true" else _own_id(arrival)


def _own_id(arrival: Arrival) -> str:
    if own := own_id(arrival):
        return own
    raise MessageRefused(f"{CANCEL}: expected an id, or a message with a key or a message_id")


def _envelope(
    rules: Rules,
    route: Route,
    arrival: Arrival,
    reading: IntakeHeaders,
    id: str,  # noqa: A002 - the field's public name
) -> Envelope:
    headers, controls = reading.remaining, reading.controls
    round_ = None
    if rules.to == "origin":
        round_ = next_round(arrival, reading, route.retry)
        headers += round_.headers
    # The source has read its types off the wire, and the rest is checked here and by the limits.
    return Envelope(
        id=id,
        body=arrival.body,
        due=_due(reading, route, round_, id),
        key=_key(controls[KEY]) if KEY in controls else arrival.key,
        headers=headers,
        properties=arrival.properties or NO_PROPERTIES,
        target=_target(rules, route, arrival, reading),
    )


def _due(reading: IntakeHeaders, route: Route, round_: Round | None, id: str) -> Instant:  # noqa: A002
    if len(reading.times) == 1:
        name, value = reading.times[0]
        return _READERS[name](name, value)
    if reading.times:
        got = ", ".join(name for name, _ in reading.times)
        raise MessageRefused(f"headers: expected at most one of {', '.join(TIMES)}; got {got}")
    return NOW if round_ is None else back_off(route.retry, round_.number, id)


def _key(value: object) -> bytes:
    return value if isinstance(value, bytes) else values.text(KEY, value).encode()


def _target(rules: Rules, route: Route, arrival: Arrival, reading: IntakeHeaders) -> Target | None:
    """Return the target of an envelope's own; None for the route's."""
    found: Target | None = None
    if rules.to == "origin":
        found = rules.named_target(arrival.origin)
    elif TOPIC in reading.controls:
        found = rules.named_target(values.text(TOPIC, reading.controls[TOPIC]))
    elif rules.to == "declared":
        found = arrival.onward
    return None if found == route.target else found
