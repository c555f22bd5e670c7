"""Decides the outcomes of the messages in flight on a closed channel.

RabbitMQ processes a channel in order. On an error it drops later messages, loses earlier confirms
and does not name the culprit; only a refusal by topic permission names its routing key, or the
beginning of a long one. While a passive declaration is unanswered, no later message was read.
RabbitMQ asks no permission for one, so that a refusal is of a message before it, if there is one.
"""

from collections.abc import Mapping
from typing import NamedTuple

from pika.exceptions import ChannelClosedByBroker

from duebridge.ports.publisher import Outcome, Reason
from duebridge_connectors.rabbitmq.errors import culprit_outcome, not_sent, unanswered
from duebridge_connectors.rabbitmq.publishing.batch import PendingMessage

_FORBIDDEN, _MISSING = 403, 404  # reply codes
_TOPIC = "ACCESS_REFUSED - access to topic "
_CUT = "..."  # the end of a text of more than 255 bytes


class Judgement(NamedTuple):
    """Messages to settle, messages to resend, and the outcome of waiting messages.

    `refused` applies to the routing key `refused_key`, or to all if that is None.
    `is_doubtful`: an unidentified message among `settled` closed the channel. `is_of_topic`: a
    topic permission, which is of each routing key, refused one.
    """

    settled: list[tuple[PendingMessage, Outcome]]
    unread: list[PendingMessage]
    refused: Outcome | None = None
    refused_key: str | None = None
    is_doubtful: bool = False
    is_of_topic: bool = False


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
    if asked_at is not None and _refuses_declaration(closed, read):
        return Judgement(_all_unanswered(read, closed), unread, refused=outcome)
    is_of_topic = closed.reply_code == _FORBIDDEN and _TOPIC in closed.reply_text
    if is_of_topic and (place := _named_place(closed, read)) is not None:
        key = read[place].routing_key
        settled = [*_all_unanswered(read[:place], closed), (read[place], outcome)]
        return Judgement(settled, [*read[place + 1 :], *unread], outcome, key, is_of_topic=True)
    if not read:
        return Judgement([], unread, refused=not_sent(closed))
    if len(read) == 1:
        # A topic that is not its routing key is of its CC header.
        others = (None, None) if is_of_topic else _effect_on_others(outcome, read[0])
        return Judgement([(read[0], outcome)], unread, *others, is_of_topic=is_of_topic)
    doubted = _all_unanswered(read, closed)
    return Judgement(doubted, unread, is_doubtful=True, is_of_topic=is_of_topic)


def _refuses_declaration(closed: ChannelClosedByBroker, read: list[PendingMessage]) -> bool:
    return closed.reply_code == _MISSING or (closed.reply_code == _FORBIDDEN and not read)


def _named_place(closed: ChannelClosedByBroker, read: list[PendingMessage]) -> int | None:
    """Return the place of the last message with the routing key that a topic permission refuses.

    It was certainly refused, or dropped after the one that was; what comes behind it was dropped.
    An earlier one of the key may have been published, if the permission is new.
    """
    keys = {message.routing_key for message in read}
    named = {key for key in keys if _may_name(closed.reply_text, key)}
    places = [place for place, message in enumerate(read) if message.routing_key in named]
    return places[-1] if len(named) == 1 else None


def _may_name(text: str, key: str) -> bool:
    """Return whether the text names the key, as far as RabbitMQ has not cut it."""
    full = f"{_TOPIC}'{key}' in exchange "
    return text.startswith(full) or full.startswith(text.removesuffix(_CUT))


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
