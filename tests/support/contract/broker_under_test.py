"""What a connector's tests provide to the contract, and how the contract builds its deliveries."""

import itertools
import secrets
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field, fields
from threading import Event
from typing import Protocol

import pytest

from duebridge.envelope import Headers, HeaderValue, Properties, Target
from duebridge.ports.publisher import BrokerUnavailable, Delivery, Outcome, Publisher, Verdict

BRIDGE_ID = "x-message-id"


def _feature(meaning: str) -> bool:
    return field(metadata={"meaning": meaning})  # type: ignore[no-any-return]


@dataclass(frozen=True, kw_only=True)
class Features:
    """What one connector's broker can do; a test of what it cannot do is skipped by this."""

    broker: str
    largest_body: int

    keys: bool = _feature("a key travels with the message")
    null_body: bool = _feature("a body of None (a tombstone) differs from an empty one")
    typed_headers: bool = _feature("header values arrive as the type they were; else as text")
    null_header_values: bool = _feature("a header value of None arrives as one")
    ordered_headers: bool = _feature("headers arrive in the order given")
    repeated_header_names: bool = _feature("a header name may occur more than once")
    properties: bool = _feature("AMQP properties travel")
    missing_target: bool = _feature("a missing target is noticed, and told apart per delivery")
    size_limit: bool = _feature("a message that is too large is refused by itself")
    invalid: bool = _feature("the broker validates records: an invalid one is refused by itself")


def meanings() -> dict[str, str]:
    """Return each feature's name and meaning, in the order of the table in connectors/README.md."""
    return {f.name: f.metadata["meaning"] for f in fields(Features) if "meaning" in f.metadata}


@dataclass(frozen=True)
class Received:
    """One message as an independent consumer read it from the broker.

    `id` is AMQP's message_id, or on a broker without one the header x-message-id. That header is
    left out of `headers`; the others are as the consumer's library gives them.
    """

    body: bytes | None
    id: str
    key: bytes | None = None
    headers: Headers = ()
    properties: Properties | None = None


class BrokerUnderTest(Protocol):
    """What a connector's tests provide: its publisher, and a way round it to the real broker."""

    features: Features

    def open(self, deadline_s: float) -> Publisher:
        """Return a publisher to the real broker."""

    def open_at(self, port: int, deadline_s: float) -> Publisher:
        """Return a publisher to a broker said to be at this port of 127.0.0.1; none is there."""

    def missing_target(self) -> Target:
        """Return a target of a new name, which does not exist."""

    def create(self, target: Target) -> None:
        """Make it exist, ordered as a whole (on Kafka: of one partition)."""

    def delete(self, target: Target) -> None:
        """Make it missing again."""

    def read_all(self, target: Target) -> Sequence[Received]:
        """Return everything that the target holds, oldest first, by another connection."""

    def too_large(self, target: Target) -> Delivery:
        """Return a delivery that the broker refuses for its size alone (if `size_limit`)."""

    def invalid(self) -> tuple[Delivery, Delivery]:
        """Return an invalid delivery, and a good one to the same target (if `invalid`)."""


_numbers = itertools.count()


def delivery(
    target: Target,
    body: bytes | None = b"body",
    key: bytes | None = None,
    headers: Headers = (),
    properties: Properties | None = None,
) -> Delivery:
    """Return one with an id of its own, which travels as the worker sends it."""
    id_ = f"{next(_numbers)}-{secrets.token_hex(4)}"
    return Delivery(id_, target, body, key, ((BRIDGE_ID, id_), *headers), properties)


def ids(messages: Sequence[Delivery] | Sequence[Received]) -> list[str]:
    return [message.id for message in messages]


def verdicts(outcomes: Sequence[Outcome]) -> list[Verdict]:
    return [outcome.verdict for outcome in outcomes]


def confirms(publisher: Publisher, broker: BrokerUnderTest) -> bool:
    """Publish to a new target, and read it back by another way."""
    target = broker.missing_target()
    broker.create(target)
    batch = [delivery(target) for _ in range(3)]
    assert verdicts(publisher.publish(batch)) == [Verdict.CONFIRMED] * 3
    return ids(broker.read_all(target)) == ids(batch)


def needs(broker: BrokerUnderTest, feature: str) -> None:
    if not getattr(broker.features, feature):
        pytest.skip(f"{broker.features.broker} declares that it has no {feature}")


def as_text(value: HeaderValue) -> bytes | None:
    """Return a header value in the form that a broker without typed headers carries."""
    if value is None or isinstance(value, bytes):
        return value
    return str(value).lower().encode() if isinstance(value, bool) else str(value).encode()


def answers_again(publisher: Publisher) -> bool:
    """Ask until the broker answers, for half a minute at most."""
    give_up_at = time.monotonic() + 30
    while time.monotonic() < give_up_at:
        with suppress(BrokerUnavailable):
            publisher.ping()
            return True
        Event().wait(0.05)
    return False
