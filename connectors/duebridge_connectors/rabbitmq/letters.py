"""Keeps a dead letter in its queue: what RabbitMQ would act upon becomes headers `x-dlq-*`.

Imports no client. `sizes.FIXED_BYTES` has room for the longer names.
"""

from typing import Final

from msgspec.structs import replace

from duebridge.envelope import Headers, Properties
from duebridge.ports.publisher import Delivery

SENDER_SELECTED: Final = {"CC": "x-dlq-cc", "BCC": "x-dlq-bcc"}
"""The headers with routing keys of further copies, and their names in a dead letter."""
EXPIRATION_HEADER: Final = "x-dlq-expiration"


def as_letter(delivery: Delivery) -> Delivery:
    """Return a dead letter as RabbitMQ gets it: for its target alone, and without an expiration.

    A header that is there already by a new name yields to the moved one.
    """
    properties = delivery.properties or Properties()
    headers = delivery.headers
    moved: Headers = tuple(
        (SENDER_SELECTED[name], value) for name, value in headers if name in SENDER_SELECTED
    )
    if properties.expiration is not None:
        moved = (*moved, (EXPIRATION_HEADER, properties.expiration))
    gone = {*SENDER_SELECTED, *(name for name, _ in moved)}
    rest = tuple(pair for pair in headers if pair[0] not in gone)
    return replace(
        delivery, headers=(*rest, *moved), properties=replace(properties, expiration=None)
    )
