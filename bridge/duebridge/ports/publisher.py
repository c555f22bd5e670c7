"""The port through which the worker publishes: deliveries in, one outcome each.

The worker accesses brokers only through this module; `BrokerType.open_publisher` returns one.
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
        """The name of the reason in headers, logs and metrics."""
        return self.name.lower()


def reason_word(number: int) -> str:
    """Return the word of a stored reason, or the number if only a newer duebridge knows it."""
    try:
        return Reason(number).word
    except ValueError:
        return str(number)


class BrokerUnavailable(BridgeError):
    """The broker does not answer; nothing was sent."""


class Verdict(Enum):
    """The result of a delivery; it determines the next state of the envelope.

    CONFIRMED           the broker has it                                  -> ack
    REJECTED            this message can never be sent: too large, ...     -> bury at once
    FAILED              a refusal of this message, now                     -> retry, counts
    TARGET_FAILED       the target is missing, forbidden or unroutable     -> `hold`, then bury
    TARGET_UNAVAILABLE  too few replicas, no leader, throttled             -> wait, no limit
    PART_UNAVAILABLE    so is its part of the target, other parts are not  -> wait, no limit
    DEFERRED            refused for another's sake, not tried by itself    -> retry
    UNAVAILABLE         the broker is unreachable; nothing was sent        -> release
    INDETERMINATE       it may have been published                         -> retry, unsure
    """

    CONFIRMED = "confirmed"
    REJECTED = "rejected"
    FAILED = "failed"
    TARGET_FAILED = "target_failed"
    TARGET_UNAVAILABLE = "target_unavailable"
    PART_UNAVAILABLE = "part_unavailable"
    DEFERRED = "deferred"
    UNAVAILABLE = "unavailable"
    INDETERMINATE = "indeterminate"


class Outcome(msgspec.Struct, frozen=True):
    """A verdict and, unless confirmed, the error; `reason` goes into a dead letter.

    `is_unsure`: the broker may have appended it somewhere, whatever the verdict; INDETERMINATE is
    unsure by itself. `part` is the part of the target that it went to, such as Kafka's partition,
    -1 if unknown: a timeout counts only against later confirms of the same part.
    """

    verdict: Verdict
    reason: Reason = Reason.ATTEMPTS_EXHAUSTED
    error_class: str = ""
    error_message: str = ""
    is_unsure: bool = False
    part: int = -1

    @property
    def may_be_published(self) -> bool:
        """Whether the broker may have the message although it did not confirm it."""
        return self.is_unsure or self.verdict is Verdict.INDETERMINATE

    @property
    def error(self) -> str:
        """Error class and message in stored form; empty without an error class."""
        return f"{self.error_class}\n{self.error_message}" if self.error_class else ""


CONFIRMED = Outcome(Verdict.CONFIRMED)


class Delivery(msgspec.Struct, frozen=True, gc=False):
    """One complete message for a broker; `headers` includes the bridge's headers.

    `is_dead_letter`: its confirm ends the envelope or message, so it has to stay where it is sent,
    whatever its properties and headers ask of the broker.
    """

    id: str
    target: Target
    body: bytes | None
    key: bytes | None = None
    headers: Headers = ()
    properties: Properties | None = None
    is_dead_letter: bool = False


class Publisher(Protocol):
    """A connection to one broker. All methods are thread-safe."""

    def publish(self, batch: Sequence[Delivery]) -> Sequence[Outcome]:
        """Return one outcome per delivery, in the same order, within the publish deadline.

        CONFIRMED only when the broker itself confirms; an answer missing at the deadline is
        INDETERMINATE, never FAILED. One bad delivery does not change the outcome of the others.
        """
        ...

    def ping(self) -> None:
        """Raise `BrokerUnavailable` if the broker does not answer within the publish deadline.

        Sends no message.
        """
        ...

    def close(self) -> None:
        """Close the connection; unanswered deliveries become INDETERMINATE. Idempotent."""
        ...
