"""What a closed channel says about what was under way on it, and what it leaves open.

RabbitMQ handles what comes on a channel in order. It drops what follows the culprit and loses the
confirms of what went before, and it does not say which one the culprit was. A passive declaration
of the exchange, sent ahead of a run, tells more: while it is unanswered, nothing after it was read.
"""

from collections.abc import Mapping
from typing import NamedTuple

from pika.exceptions import ChannelClosedByBroker

from duebridge.ports.publisher import Outcome, Reason
from duebridge_connectors.rabbitmq.batch import PendingMessage
from duebridge_connectors.rabbitmq.errors import culprit_outcome, not_sent, unanswered

# What the declaration may be answered with.
_EXCHANGE_REFUSALS = frozenset({403, 404})


class Judgement(NamedTuple):
    """What to settle; what to send again; and what holds for whatever waits for the exchange.

    `refused` holds for one routing key, `refused_key`, or for every one where that is None.
    `is_doubtful`: the culprit is among what is settled, but it is not known which one it is.
    """

    settled: list[tuple[PendingMessage, Outcome]]
    unread: list[PendingMessage]
    refused: Outcome | None = None
    refused_key: str | None = None
    is_doubtful: bool = False


def judge(
    closed: ChannelClosedByBroker, unconfirmed: Mapping[int, PendingMessage], asked_at: int | None
) -> Judgement:
    """Return what is certain; whatever may have been published becomes INDETERMINATE.

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
    """Return what a culprit's outcome says of others: a missing exchange is missing for all."""
    if outcome.reason is Reason.TARGET_MISSING:
        return outcome, None
    if outcome.reason is Reason.UNAUTHORIZED:
        return outcome, culprit.routing_key
    return None, None
