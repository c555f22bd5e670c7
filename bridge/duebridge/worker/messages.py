"""Builds what is published: the delivery of an envelope, and its dead letter."""

from duebridge.envelope import Target
from duebridge.headers import dead_letter_headers, delivery_headers
from duebridge.ports.publisher import Delivery, Reason
from duebridge.receipt import shown_id
from duebridge.store.wire.leases import DamagedEnvelope, LeasedEnvelope


def delivery(leased: LeasedEnvelope, route: str, target: Target) -> Delivery:
    """Return the delivery of an envelope, with the bridge's headers."""
    content = leased.content
    headers = delivery_headers(leased, route)
    return Delivery(leased.id, target, content.body, content.key, headers, content.properties)


def dead_letter(leased: LeasedEnvelope, route: str, target: Target, letters: Target) -> Delivery:
    """Return the original message to `letters`, plus `x-dlq-*` headers that say why it is dead."""
    content = leased.content
    headers = dead_letter_headers(leased, route, content.target or target)
    return Delivery(leased.id, letters, content.body, content.key, headers, content.properties)


def damaged_letter(
    damaged: DamagedEnvelope, route: str, target: Target, letters: Target
) -> Delivery:
    """Return a dead letter whose body is the raw, unreadable record, for manual inspection."""
    headers = (
        ("x-message-id", shown_id(damaged.id)),
        ("x-dlq-reason", Reason.POISON.word),
        ("x-dlq-error-class", type(damaged.error).__name__),
        ("x-dlq-error-message", str(damaged.error)),
        ("x-dlq-route", route),
        ("x-dlq-target", str(target)),
    )
    return Delivery(damaged.id, letters, damaged.data, headers=headers)
