"""Sends what an intake refuses to its dead-letter target; nothing is refused into nowhere."""

from collections.abc import Sequence
from typing import NamedTuple

from duebridge.envelope import Headers, Target, random_id
from duebridge.errors import BridgeError
from duebridge.headers import RESERVED_PREFIX, cause_headers
from duebridge.intake.requests import RefusedMessage
from duebridge.ports.publisher import Delivery, Outcome, Publisher, Verdict

ERROR_CLASS = "EnvelopeError"  # what a producer would have got


_SETTLED = (Verdict.CONFIRMED, Verdict.REJECTED)


class LettersHeld(BridgeError):
    """The dead-letter target did not confirm these refusals; they have to be sent again."""

    def __init__(self, left: Sequence[RefusedMessage], outcome: Outcome) -> None:
        said = f"{outcome.error_class}: {outcome.error_message}"
        super().__init__(f"{len(left)} dead letters {outcome.verdict.value}: {said}")
        self.left = list(left)


class UnsentRefusals(NamedTuple):
    """The refusals that the broker has not confirmed: rejected for good, and to be sent again."""

    rejected: Sequence[RefusedMessage] = ()
    held: LettersHeld | None = None


class LetterBox:
    """The dead-letter target of one intake. `use` is called by any thread, `send` by one."""

    def __init__(self, publisher: Publisher, target: Target) -> None:
        self._destination = publisher, target

    def use(self, publisher: Publisher, target: Target) -> None:
        """Send to another target from the next `send` on, also what the former one held."""
        self._destination = publisher, target

    def send(self, refusals: Sequence[RefusedMessage]) -> UnsentRefusals:
        """Send refusals; return those that the broker has not confirmed."""
        if not refusals:
            return UnsentRefusals()
        publisher, target = self._destination  # one read: a reload may replace both amid this
        outcomes = publisher.publish([letter(each, target) for each in refusals])
        pairs = list(zip(refusals, outcomes, strict=True))
        rejected = [each for each, outcome in pairs if outcome.verdict is Verdict.REJECTED]
        held = [pair for pair in pairs if pair[1].verdict not in _SETTLED]
        if not held:
            return UnsentRefusals(rejected)
        return UnsentRefusals(rejected, LettersHeld([refusal for refusal, _ in held], held[0][1]))


def letter(refusal: RefusedMessage, target: Target) -> Delivery:
    """Return the original message, plus `x-dlq-*` headers that say why it was refused."""
    arrival = refusal.arrival
    return Delivery(
        id=arrival.id or random_id(),
        target=target,
        body=arrival.body,
        key=arrival.key,
        headers=(*original_headers(arrival.headers), *_cause(refusal)),
        properties=arrival.properties,
        is_dead_letter=True,
    )


def original_headers(headers: Headers) -> Headers:
    """Return the headers without the cause of an earlier death."""
    return tuple(pair for pair in headers if not pair[0].lower().startswith(RESERVED_PREFIX))


def _cause(refusal: RefusedMessage) -> Headers:
    return (
        *cause_headers(refusal.reason.word, ERROR_CLASS, refusal.text),
        ("x-dlq-route", refusal.route),
    )
