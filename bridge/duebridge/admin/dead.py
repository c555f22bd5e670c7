"""Which dead envelopes an operator means: by reason, by error, by the time they failed."""

from typing import NamedTuple

from duebridge.errors import EnvelopeError
from duebridge.ports.publisher import Reason
from duebridge.store.replies import Entry


class DeadFilter(NamedTuple):
    """Every condition that is given must hold; instants in epoch ms, both ends included.

    `error_class` is the whole name, `error_text` is found in class or message whatever its case.
    """

    reasons: frozenset[int] = frozenset()
    error_class: str = ""
    error_text: str = ""
    after_ms: int | None = None
    before_ms: int | None = None

    def has(self, entry: Entry) -> bool:
        """Whether an envelope is meant."""
        flight = entry.flight
        error = f"{flight.error_class}: {flight.error_message}"
        return (
            (not self.reasons or flight.reason in self.reasons)
            and (not self.error_class or flight.error_class == self.error_class)
            and self.error_text.casefold() in error.casefold()
            and self._has_instant(ended_at_ms(entry))
        )

    def _has_instant(self, at_ms: int) -> bool:
        return (self.after_ms is None or at_ms >= self.after_ms) and (
            self.before_ms is None or at_ms <= self.before_ms
        )


ANY_DEAD = DeadFilter()


def ended_at_ms(entry: Entry) -> int:
    """Return the last failure; where none is noted the expiry, else the due instant, else 0."""
    if entry.flight.last_failed_at_ms or entry.record is None:
        return entry.flight.last_failed_at_ms
    return entry.record.expires_at_ms or entry.record.due_at_ms


def reason_number(word: str) -> int:
    """Return the number of a reason's word; raises `EnvelopeError`, naming those there are."""
    words = {reason.word: reason for reason in Reason}
    if word not in words:
        raise EnvelopeError(f"reason: expected one of {', '.join(words)}; got {word!r}")
    return words[word]
