"""Builds the headers that duebridge adds to a delivery: ASCII text, identical on every broker."""

from duebridge.envelope import Headers, Target
from duebridge.ports.publisher import reason_word
from duebridge.store.replies import LeasedEnvelope

RESERVED = frozenset({"x-message-id", "x-route", "x-attempt", "x-due-at", "x-scheduled-at"})
RESERVED_PREFIX = "x-dlq-"
ERROR_CHARACTERS = 1024


def delivery_headers(leased: LeasedEnvelope, route: str) -> Headers:
    """Return the envelope's headers, unchanged, then the bridge's own; times in epoch ms."""
    return (
        *leased.content.headers,
        ("x-message-id", leased.id),
        ("x-route", route),
        ("x-attempt", str(leased.flight.attempt)),
        ("x-due-at", str(leased.record.due_at_ms)),
        ("x-scheduled-at", str(leased.record.scheduled_at_ms)),
    )


def dead_letter_headers(leased: LeasedEnvelope, route: str, target: Target) -> Headers:
    """Return the headers of a delivery, then the cause as `x-dlq-*`; times in epoch ms."""
    flight = leased.flight
    return (
        *delivery_headers(leased, route),
        ("x-dlq-reason", reason_word(flight.reason)),
        ("x-dlq-error-class", flight.error_class),
        ("x-dlq-error-message", flight.error_message[:ERROR_CHARACTERS]),
        ("x-dlq-attempts", str(flight.attempt)),
        ("x-dlq-route", route),
        ("x-dlq-target", str(target)),
        ("x-dlq-first-failed-at", str(flight.first_failed_at_ms)),
        ("x-dlq-last-failed-at", str(flight.last_failed_at_ms)),
    )
