"""Builds the headers that duebridge adds to a delivery: ASCII text, identical on every broker.

What a dead letter's broker has no place for goes as `x-dlq-key` and `x-dlq-` plus the property's
name, as does what would take it from its queue: the connectors add these.
"""

from duebridge.durations import MAX_MS
from duebridge.envelope import SHORT_BYTES, Headers, Target
from duebridge.ports.publisher import Reason, reason_word
from duebridge.store.wire.leases import LeasedEnvelope
from duebridge.store.wire.record import EnvelopeContent, Flight, Record

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
        *cause_headers(reason_word(flight.reason), flight.error_class, flight.error_message),
        ("x-dlq-attempts", str(flight.attempt)),
        ("x-dlq-route", route),
        ("x-dlq-target", str(target)),
        ("x-dlq-first-failed-at", str(flight.first_failed_at_ms)),
        ("x-dlq-last-failed-at", str(flight.last_failed_at_ms)),
    )


def cause_headers(reason: str, error_class: str, error_message: str) -> Headers:
    """Return the headers with which the cause of every dead letter begins."""
    return (
        ("x-dlq-reason", reason),
        ("x-dlq-error-class", error_class),
        ("x-dlq-error-message", error_message[:ERROR_CHARACTERS]),
    )


def longest_headers(route: str, target: Target) -> tuple[Headers, Headers]:
    """Return the longest headers that `delivery_headers` and `dead_letter_headers` can add."""
    flight = Flight(
        attempt=2**32,
        reason=max(Reason, key=lambda reason: len(reason.word)),
        first_failed_at_ms=MAX_MS,
        last_failed_at_ms=MAX_MS,
        error_class="x" * ERROR_CHARACTERS,  # class and message share so many bytes
    )
    record = Record(MAX_MS, MAX_MS, MAX_MS, MAX_MS, 0, b"", b"")
    leased = LeasedEnvelope("x" * SHORT_BYTES, record, flight, EnvelopeContent(body=None))
    return delivery_headers(leased, route), dead_letter_headers(leased, route, target)
