"""Lists dead envelopes, filtered by reason, by error and by the time they failed."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

from duebridge.errors import EnvelopeError
from duebridge.ports.publisher import Reason
from duebridge.store.wire.replies import Entry

if TYPE_CHECKING:
    from duebridge.admin.listing import ListedEnvelope, ListPosition
    from duebridge.admin.operator import Operator


class DeadFilter(NamedTuple):
    """Conditions that must all hold; instants in epoch ms, both ends included.

    `error_class` is the whole name; `error_text` is found in class or message, ignoring case.
    """

    reasons: frozenset[int] = frozenset()
    error_class: str = ""
    error_text: str = ""
    after_ms: int | None = None
    before_ms: int | None = None

    def has(self, entry: Entry) -> bool:
        """Whether an envelope matches."""
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


def list_dead(
    operator: "Operator",
    route: str,
    wanted: DeadFilter = ANY_DEAD,
    *,
    after: "ListPosition | None" = None,
    most_bytes: int | None = None,
) -> "Iterator[ListedEnvelope]":
    """Yield the matching dead envelopes, which may be settled meanwhile.

    What is read ahead has `most_bytes` of records in all, or one of each shard. Raises as
    `Operator` does.
    """
    from duebridge.admin.listing import Listing

    listed = Listing(route, operator.stores(route), "dead").walk(after=after, most_bytes=most_bytes)
    return (envelope for envelope in listed if wanted.has(envelope.entry))


def ended_at_ms(entry: Entry) -> int:
    """Return when it last failed; if unknown when it expired, else its due instant, else 0."""
    flight, record = entry.flight, entry.record
    if flight.last_failed_at_ms or record is None:
        return flight.last_failed_at_ms
    has_expired = flight.reason == Reason.EXPIRED
    return record.expires_at_ms if has_expired else record.due_at_ms


def reason_number(word: str) -> int:
    """Return the number of a reason's word; raises `EnvelopeError`, which lists the words."""
    words = {reason.word: reason for reason in Reason}
    if word not in words:
        raise EnvelopeError(f"reason: expected one of {', '.join(words)}; got {word!r}")
    return words[word]
