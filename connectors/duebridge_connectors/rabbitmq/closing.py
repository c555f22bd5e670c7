"""What a closed channel says about what was under way on it, and what it leaves open.

RabbitMQ handles what comes on a channel in order. It drops what follows the culprit and loses the
confirms of what went before, and it does not say which one the culprit was. A passive declaration
of the exchange, sent ahead of a run, tells more: while it is unanswered, nothing after it was read.
"""

from collections.abc import Mapping
from typing import NamedTuple

from pika.exceptions import ChannelClosedByBroker

from duebridge.ports.publisher import Outcome, Reason
from duebridge_connectors.rabbitmq.batch import Parcel
from duebridge_connectors.rabbitmq.errors import culprit_outcome, not_sent, unanswered

# What the declaration may be answered with.
_OF_EXCHANGE = frozenset({403, 404})


class Judgement(NamedTuple):
    """What to settle; what to send again; and what holds for whatever waits for the exchange.

    `refused` holds for one routing key, `refused_key`, or for every one where that is None.
    `is_doubtful`: the culprit is among what is settled, but it is not known which one it is.
    """

    settled: list[tuple[Parcel, Outcome]]
    unread: list[Parcel]
    refused: Outcome | None = None
    refused_key: str | None = None
    is_doubtful: bool = False


def judge(
    closed: ChannelClosedByBroker, unconfirmed: Mapping[int, Parcel], asked_at: int | None
) -> Judgement:
    """Return what is certain; whatever may have been published becomes INDETERMINATE.

    `unconfirmed` is by delivery tag, in order. `asked_at` is the tag of the first parcel after a
    declaration that is still unanswered, None if all are answered.
    """
    limit = float("inf") if asked_at is None else asked_at
    read = [parcel for tag, parcel in unconfirmed.items() if tag < limit]
    unread = [parcel for tag, parcel in unconfirmed.items() if tag >= limit]
    outcome = culprit_outcome(closed)
    if asked_at is not None and closed.reply_code in _OF_EXCHANGE:
        return Judgement(_in_doubt(read, closed), unread, refused=outcome)
    if not read:
        return Judgement([], unread, refused=not_sent(closed))
    if len(read) == 1:
        return Judgement([(read[0], outcome)], unread, *_shared(outcome, read[0]))
    return Judgement(_in_doubt(read, closed), unread, is_doubtful=True)


def _in_doubt(read: list[Parcel], closed: Exception) -> list[tuple[Parcel, Outcome]]:
    doubt = unanswered(closed)
    return [(parcel, doubt) for parcel in read]


def _shared(outcome: Outcome, culprit: Parcel) -> tuple[Outcome | None, str | None]:
    """Return what a culprit's outcome says of others: a missing exchange is missing for all."""
    if outcome.reason is Reason.TARGET_MISSING:
        return outcome, None
    if outcome.reason is Reason.UNAUTHORIZED:
        return outcome, culprit.routing_key
    return None, None
