"""The answers that a producer gets: receipts of scheduled envelopes, and known envelopes."""

from typing import Any, Literal, Self, TypeAlias

import msgspec

from duebridge.envelope import Headers, Properties, Target
from duebridge.errors import on_one_line
from duebridge.ports.publisher import reason_word
from duebridge.store.wire.record import EnvelopeContent
from duebridge.store.wire.replies import CancelAnswer, Entry, MoveAnswer, State

ReceiptStatus: TypeAlias = Literal[
    "accepted", "duplicate", "conflict", "replaced", "in_flight", "cancelled", "dead", "refused"
]
KnownState: TypeAlias = State | Literal["cold"]  # cold: in the files of the cold tier

__all__ = [
    "CancelAnswer",
    "EnvelopeDetails",
    "Known",
    "KnownState",
    "MoveAnswer",
    "Receipt",
    "ReceiptStatus",
    "shown_id",
]


class Receipt(msgspec.Struct, frozen=True, omit_defaults=True):
    """The answer for one envelope; `due_at_ms` is the store's, in epoch ms.

    `cancelled` and `dead` tell how a remembered id ended: nothing of this envelope was stored. In
    bulk, `status` may also be `refused`: then nothing of this envelope was stored, `error` says
    why, and a due instant that was given as a delay is 0.
    """

    id: str
    route: str
    due_at_ms: int
    status: ReceiptStatus
    error: str = ""


class Known(msgspec.Struct, frozen=True):
    """An envelope that the store has; instants in epoch ms, 0 for none.

    `letter_error` is the last failure of its dead letter.
    """

    id: str
    route: str
    state: KnownState
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
    letter_error: str

    @classmethod
    def of(cls, route: str, entry: Entry) -> Self:
        """Return a stored entry; damaged parts are zeros, and the error says so."""
        return cls(**_known_fields(route, entry))


class EnvelopeDetails(Known, frozen=True):
    """An envelope with everything that the store has of it; None for a field that was not given.

    `body_size_bytes` is None beside a body of None, and where the record cannot be read.
    """

    remember_ms: int
    max_attempts: int | None
    target: Target | None
    key: bytes | None
    headers: Headers
    properties: Properties
    body: bytes | None
    body_size_bytes: int | None

    @classmethod
    def of(cls, route: str, entry: Entry) -> Self:
        """Return a stored entry with its body."""
        content = entry.content or EnvelopeContent(body=None)
        return cls(
            **_known_fields(route, entry),
            remember_ms=entry.record.remember_ms if entry.record else 0,
            max_attempts=content.max_attempts,
            target=content.target,
            key=content.key,
            headers=content.headers,
            properties=content.properties or Properties(),
            body=content.body,
            body_size_bytes=None if content.body is None else len(content.body),
        )


def shown_id(id: str) -> str:  # noqa: A002 - the public name of the field
    """Return an id as printable text, damaged bytes escaped."""
    return id.encode(errors="surrogateescape").decode(errors="backslashreplace")


def _known_fields(route: str, entry: Entry) -> dict[str, Any]:
    record, flight = entry.record, entry.flight
    return {
        "id": shown_id(entry.id),
        "route": route,
        "state": entry.state,
        "due_at_ms": record.due_at_ms if record else 0,
        "scheduled_at_ms": record.scheduled_at_ms if record else 0,
        "expires_at_ms": record.expires_at_ms if record else 0,
        "attempt": flight.attempt,
        "failures": flight.failures,
        "expiries": flight.expiries,
        "reason": reason_word(flight.reason) if flight.reason else "",
        "error_class": "RecordDamaged" if entry.damage else flight.error_class,
        "error_message": entry.damage or flight.error_message,
        "first_failed_at_ms": flight.first_failed_at_ms,
        "last_failed_at_ms": flight.last_failed_at_ms,
        "letter_error": on_one_line(flight.letter_error),
    }
