"""The meanings and remedies of the broker's refusals of a consumer."""

from typing import Final

from pika.exceptions import ChannelClosedByBroker

from duebridge.errors import ConfigError
from duebridge.ports.publisher import BrokerUnavailable

REFUSED: Final = 403
NOT_FOUND: Final = 404
LOCKED: Final = 405
PRECONDITION: Final = 406


def says_no_stream(closed: ChannelClosedByBroker) -> bool:
    """Whether it refuses to give a queue's messages from an offset on, as only streams do."""
    return closed.reply_code == PRECONDITION and "x-stream-offset" in closed.reply_text


def refusal(closed: ChannelClosedByBroker, queue: str) -> ConfigError | BrokerUnavailable:
    """Return the error of a refusal: what a user has to change, or what time may change."""
    code, text = closed.reply_code, str(closed.reply_text)
    said = f"({code} {text})"
    if code == NOT_FOUND and "no queue" in text:  # else its node is down
        remedy = "declare it (`duebridge intake declare`), or correct the intake's source.queue"
        return ConfigError(f"queue {queue!r} does not exist: {remedy} {said}")
    if code == LOCKED or (code == REFUSED and "exclusive" in text):
        return ConfigError(f"queue {queue!r} is in use by an exclusive consumer: end it {said}")
    if code == REFUSED:
        remedy = "grant this user the right to read it (`duebridge acl` prints the command)"
        return ConfigError(f"queue {queue!r} may not be read: {remedy} {said}")
    return BrokerUnavailable(f"it closed the channel of queue {queue!r} {said}")
