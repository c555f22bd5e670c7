"""Which deliveries RabbitMQ may refuse by closing the channel.

A closed channel loses the confirms of all that was under way on it, so such a delivery travels
alone. What RabbitMQ then says of it is final; nothing is refused here.
"""

import re
from typing import Final

from duebridge.ports.publisher import Delivery

_DIGITS = re.compile("[0-9]{1,10}")
_MOST_EXPIRATION_MS: Final = 2**32 - 1
_SENDER_SELECTED: Final = frozenset({"CC", "BCC"})
_DIRECT_REPLY: Final = "amq.rabbitmq.reply-to"


def is_risky(delivery: Delivery, user: str | None) -> bool:
    """Return whether a property or header may be one that RabbitMQ does not take from this user."""
    for name, _ in delivery.headers:
        if name in _SENDER_SELECTED:
            return True
    given = delivery.properties
    if given is None:
        return False
    return (
        (given.user_id is not None and given.user_id != user)
        or (given.expiration is not None and not _is_plain(given.expiration))
        or (given.reply_to is not None and given.reply_to.startswith(_DIRECT_REPLY))
    )


def _is_plain(expiration: str) -> bool:
    return bool(_DIGITS.fullmatch(expiration)) and int(expiration) <= _MOST_EXPIRATION_MS
