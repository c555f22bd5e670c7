"""The publisher of a broker type: deliveries in, one outcome each.

The worker knows brokers only through this file; `BrokerType.open_publisher` returns one.
"""

from collections.abc import Sequence
from enum import Enum, IntEnum
from typing import Protocol

import msgspec

from duebridge.envelope import Headers, Properties, Target
from duebridge.errors import BridgeError


class Reason(IntEnum):
    """Why an envelope is dead. Numbers are stored; lua/shared/flight.lua has EXPIRED and POISON."""

    ATTEMPTS_EXHAUSTED = 1
    EXPIRED = 2
    UNROUTABLE = 3
    TOO_LARGE = 4
    UNAUTHORIZED = 5
    TARGET_MISSING = 6
    POISON = 7
    INVALID = 8

    @property
    def word(self) -> str:
        """The reason as headers, logs and metrics spell it."""
        return self.name.lower()


def reason_word(number: int) -> str:
    """Return the word of a stored reason; one that only a newer duebridge knows is its number."""
    try:
        return Reason(number).word
    except ValueError:
        return str(number)


class BrokerUnavailable(BridgeError):
    """The broker does not answer; nothing was sent."""


class Verdict(Enum):
    """The fate of a delivery; it decides what the worker does with the envelope.

    CONFIRMED      the broker has it                                      -> ack
    REJECTED       this message can never go: too large, invalid          -> bury at once
    FAILED         a definite refusal of this message, now                -> retry, counts
    TARGET_FAILED  the target is missing or closed to us, or unroutable   -> retry, holds the route
    UNAVAILABLE    the broker is away, and this never reached the client  -> release
    INDETERMINATE  it may have been published                             -> retry, unsure
    """

    CONFIRMED = "confirmed"
    REJECTED = "rejected"
    FAILED = "failed"
    TARGET_FAILED = "target_failed"
    UNAVAILABLE = "unavailable"
    INDETERMINATE = "indeterminate"


class Outcome(msgspec.Struct, frozen=True):
    """A verdict and, unless confirmed, the error; `reason` goes into a dead letter."""

    verdict: Verdict
    reason: Reason = Reason.ATTEMPTS_EXHAUSTED
    error_class: str = ""
    error_message: str = ""

    @property
    def error(self) -> str:
        """Class and message in the form that the store keeps."""
        return f"{self.error_class}\n{self.error_message}" if self.error_class else ""


CONFIRMED = Outcome(Verdict.CONFIRMED)


class Delivery(msgspec.Struct, frozen=True, gc=False):
    """One message for a broker, complete: the bridge's own headers are among `headers`."""

    id: str
    target: Target
    body: bytes | None
    key: bytes | None = None
    headers: Headers = ()
    properties: Properties | None = None


class Publisher(Protocol):
    """A connection to one broker. Every method may be called by several threads at once."""

    def publish(self, batch: Sequence[Delivery]) -> Sequence[Outcome]:
        """Return one outcome per delivery, in the same order, within the publish deadline.

        CONFIRMED only when the broker itself confirms; an answer missing at the deadline is
        INDETERMINATE, never FAILED. One bad delivery does not change the outcome of the others.
        """
        ...

    def ping(self) -> None:
        """Ask whether the broker answers; raises `BrokerUnavailable` where it does not.

        It sends no message and takes no longer than the publish deadline.
        """
        ...

    def close(self) -> None:
        """Close the connection; deliveries without an answer become INDETERMINATE. Idempotent."""
        ...
