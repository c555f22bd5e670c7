"""Keeps a dead letter in its queue: what RabbitMQ would act upon becomes headers `x-dlq-*`.

Imports no client. `sizes.FIXED_BYTES` has room for the longer names.
"""

from typing import Final

from msgspec.structs import replace

from duebridge.ports.publisher import Delivery

EXPIRATION_HEADER: Final = "x-dlq-expiration"


def as_letter(delivery: Delivery) -> Delivery:
    """Return a dead letter as RabbitMQ gets it: its queue must not let it expire.

    A header that is there already by the new name yields to the moved one.
    """
    properties = delivery.properties
    if properties is None or properties.expiration is None:
        return delivery
    rest = (pair for pair in delivery.headers if pair[0] != EXPIRATION_HEADER)
    headers = (*rest, (EXPIRATION_HEADER, properties.expiration))
    return replace(delivery, headers=headers, properties=replace(properties, expiration=None))
