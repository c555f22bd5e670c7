"""What a producer is told: receipts of what it scheduled, and what the store knows of an id."""

from typing import Self

import msgspec

from bridge.reasons import Reason
from bridge.store.replies import Entry


class Receipt(msgspec.Struct, frozen=True, omit_defaults=True):
    """The answer for one envelope; `due_at_ms` is the store's, in epoch ms.

    `status` is accepted, duplicate, conflict, replaced or in_flight; in bulk also refused: then
    nothing of this envelope was stored, and `error` says why.
    """

    id: str
    route: str
    due_at_ms: int
    status: str
    error: str = ""


class Known(msgspec.Struct, frozen=True):
    """An envelope that the store has; instants in epoch ms, 0 where there is none."""

    id: str
    route: str
    state: str
    due_at_ms: int
    scheduled_at_ms: int
    expires_at_ms: int
    attempt: int
    failures: int
    expiries: int
    reason: str
    error_class: str
    error_message: str
    first_failed_at_ms: int
    last_failed_at_ms: int

    @classmethod
    def of(cls, route: str, entry: Entry) -> Self:
        """Return what is known of a store's entry; what is damaged of it is zeros and an error."""
        record, flight = entry.record, entry.flight
        return cls(
            id=entry.id,
            route=route,
            state=entry.state,
            due_at_ms=record.due_at_ms if record else 0,
            scheduled_at_ms=record.scheduled_at_ms if record else 0,
            expires_at_ms=record.expires_at_ms if record else 0,
            attempt=flight.attempt,
            failures=flight.failures,
            expiries=flight.expiries,
            reason=Reason(flight.reason).word if flight.reason else "",
            error_class="RecordDamaged" if entry.damage else flight.error_class,
            error_message=entry.damage or flight.error_message,
            first_failed_at_ms=flight.first_failed_at_ms,
            last_failed_at_ms=flight.last_failed_at_ms,
        )
