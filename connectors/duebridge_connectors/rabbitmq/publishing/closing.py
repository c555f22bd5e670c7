"""Decides the outcomes of the messages in flight on a closed channel.

RabbitMQ processes a channel in order. On an error it drops later messages, loses earlier confirms
and does not name the culprit. While a passive declaration is unanswered, no later message was read.
"""

from collections.abc import Mapping
from typing import NamedTuple

from pika.exceptions import ChannelClosedByBroker

from duebridge.ports.publisher import Outcome, Reason
from duebridge_connectors.rabbitmq.errors import culprit_outcome, not_sent, unanswered
from duebridge_connectors.rabbitmq.publishing.batch import PendingMessage

# Reply codes of a refused declaration.
_EXCHANGE_REFUSALS = frozenset({403, 404})


class Judgement(NamedTuple):
    """Messages to settle, messages to resend, and the outcome of waiting messages.

    `refused` applies to the routing key `refused_key`, or to all if that is None.
    `is_doubtful`: an unidentified message among `settled` closed the channel.
    """

    settled: list[tuple[PendingMessage, Outcome]]
    unread: list[PendingMessage]
    refused: Outcome | None = None
    refused_key: str | None = None
    is_doubtful: bool = False


def judge(
    closed: ChannelClosedByBroker, unconfirmed: Mapping[int, PendingMessage], asked_at: int | None
) -> Judgement:
    """Return the judgement; possibly published messages become INDETERMINATE.

    `unconfirmed` is by delivery tag, in order. `asked_at` is the tag of the first message after a
    declaration that is still unanswered, None if all are answered.
    """
    limit = float("inf") if asked_at is None else asked_at
    read = [message for tag, message in unconfirmed.items() if tag < limit]
    unread = [message for tag, message in unconfirmed.items() if tag >= limit]
    outcome = culprit_outcome(closed)
    if asked_at is not None and closed.reply_code in _EXCHANGE_REFUSALS:
        return Judgement(_all_unanswered(read, closed), unread, refused=outcome)
    if not read:
        return Judgement([], unread, refused=not_sent(closed))
    if len(read) == 1:
        return Judgement([(read[0], outcome)], unread, *_effect_on_others(outcome, read[0]))
    return Judgement(_all_unanswered(read, closed), unread, is_doubtful=True)


def _all_unanswered(
    read: list[PendingMessage], closed: Exception
) -> list[tuple[PendingMessage, Outcome]]:
    doubt = unanswered(closed)
    return [(message, doubt) for message in read]


def _effect_on_others(
    outcome: Outcome, culprit: PendingMessage
) -> tuple[Outcome | None, str | None]:
    """Return the outcome, and its routing key, that also applies to waiting messages."""
    if outcome.reason is Reason.TARGET_MISSING:
        return outcome, None
    if outcome.reason is Reason.UNAUTHORIZED:
        return outcome, culprit.routing_key
    return None, None
