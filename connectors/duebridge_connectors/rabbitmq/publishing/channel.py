"""Publishes through one channel per exchange, so that a channel error affects one exchange.

All code here runs on the connection's thread.
"""

from collections import deque
from collections.abc import Iterable
from threading import Lock
from time import monotonic
from typing import Any

from pika.exceptions import ChannelClosedByBroker
from pika.spec import Basic

from duebridge.ports.publisher import CONFIRMED, Outcome
from duebridge_connectors.rabbitmq.errors import (
    NACK,
    HeadersTooLarge,
    outcome_of,
    unroutable,
)
from duebridge_connectors.rabbitmq.publishing.batch import PendingMessage, UnconfirmedMessages
from duebridge_connectors.rabbitmq.publishing.closing import judge
from duebridge_connectors.rabbitmq.publishing.encoding import OVERHEAD_BYTES, buffers, emit
from duebridge_connectors.rabbitmq.publishing.room import ChannelRoom
from duebridge_connectors.rabbitmq.publishing.topics import TopicPermissions

NO_LIMIT = 1 << 32
TURN_S = 0.2  # with a channel that another exchange waits for


class ExchangeChannel:
    """Publishes to one exchange in order and settles each message.

    Messages are pipelined, except those that may close the channel, which are in flight alone:
    risky ones, bodies larger than any this channel has accepted (so always the first), routing keys
    that were in flight when the channel closed without a known culprit, and, for a minute after a
    topic permission refused one, each routing key that has not been confirmed since.

    Where the connection has no more channels, exchanges take turns: what waits for a channel of
    `room` gets one that has nothing in flight, once that has nothing to send or has had its turn.

    `handover` guards `is_sent` and `is_finished`: a finished batch sends no further message.
    """

    def __init__(self, connection: Any, exchange: str, handover: Lock, room: ChannelRoom) -> None:
        self.exchange = exchange
        self._connection = connection
        self._room = room
        self._awaits_room = False
        self._turn_ends_at = 0.0
        self._handover = handover
        self._waiting: deque[PendingMessage] = deque()
        self._suspects: set[str] = set()
        self._topics = TopicPermissions()
        self._channel: Any = None
        self._reset()

    def _reset(self) -> None:
        self._unconfirmed = UnconfirmedMessages()
        self._alone: PendingMessage | None = None
        self._largest_accepted = -1  # the largest body accepted
        self._declared_at: int | None = None  # the tag that follows an unanswered declaration

    @property
    def is_idle(self) -> bool:
        """Whether no message is waiting or in flight."""
        return not self._waiting and not self._unconfirmed.by_tag

    @property
    def is_spare(self) -> bool:
        """Whether its channel is open, with nothing in flight."""
        is_open = self._channel is not None and self._channel.is_open
        return bool(is_open) and not self._unconfirmed.by_tag

    def put(self, messages: Iterable[PendingMessage]) -> None:
        """Queue messages and publish them as soon as possible."""
        frame_max = self._connection.params.frame_max or NO_LIMIT
        for message in messages:
            if len(message.header) + OVERHEAD_BYTES <= frame_max:
                self._waiting.append(message)
            else:
                message.settle(outcome_of(HeadersTooLarge(f"a frame has {frame_max} bytes")))
        if self._channel is not None:
            self._send_waiting()
        elif not self._awaits_room:
            self._open()

    def refuse_waiting(self, outcome: Outcome, routing_key: str | None = None) -> None:
        """Settle the unsent messages, all or those of one routing key."""
        kept: deque[PendingMessage] = deque()
        for message in self._waiting:
            if routing_key is None or message.routing_key == routing_key:
                message.settle(outcome)
            else:
                kept.append(message)
        self._waiting = kept

    def give_up(self, sent: Outcome, waiting: Outcome) -> None:
        """Settle everything: the connection is gone."""
        for message in self._unconfirmed.by_tag.values():
            message.settle(sent)
        self.refuse_waiting(waiting)
        self._reset()
        self._channel = None

    def close(self) -> None:
        """Close the channel in order, if it is open."""
        if self._channel is not None and self._channel.is_open:
            self._channel.close()

    def release(self) -> None:
        """Close a spare channel; what waits for it gets another one in turn."""
        channel, self._channel = self._channel, None
        self._reset()
        channel.close()
        self._open()

    # Opening and closing.

    def _open(self) -> bool:
        """Open a channel, now or in turn; return whether it has a use."""
        self._awaits_room = False
        if self._waiting:
            self._channel = self._room.take(self._on_open, self._open)
            self._awaits_room = self._channel is None
        if self._channel is not None:
            self._channel.add_on_close_callback(self._on_close)
        return bool(self._waiting)

    def _on_open(self, channel: Any) -> None:
        channel.add_on_return_callback(self._on_return)
        channel.confirm_delivery(self._on_confirm)  # without waiting: publishing may follow at once
        self._turn_ends_at = monotonic() + TURN_S
        self._go_on()

    def _on_close(self, channel: Any, reason: Exception) -> None:
        if channel is not self._channel or not isinstance(reason, ChannelClosedByBroker):
            return  # released; or the whole connection is closing: its owner gives up
        unconfirmed = self._unconfirmed
        judgement = judge(reason, unconfirmed.by_tag, self._declared_at)
        self._reset()
        self._channel = None
        if judgement.is_of_topic:
            self._topics.note_refusal(judgement.refused_key)
        if judgement.is_doubtful:
            self._suspects.update(message.routing_key for message, _ in judgement.settled)
        for message, outcome in judgement.settled:
            message.settle(outcome)
        for message in judgement.unread:
            message.is_sent = False
        self._waiting.extendleft(reversed(judgement.unread))
        if judgement.refused is not None:
            self.refuse_waiting(judgement.refused, judgement.refused_key)
        if self._waiting:
            self._open()

    # Sending.

    def _go_on(self) -> None:
        """Send what may be sent now; leave the channel to an exchange that waits for one."""
        self._send_waiting()
        if self._room.is_wanted and self.is_spare:
            self.release()

    def _send_waiting(self) -> None:
        """Send the messages that may be sent now."""
        if not self._waiting or not self._channel.is_open or self._has_had_its_turn():
            return
        with self._handover:
            run = self._next_run()
        if not run:
            return
        self._declare_exchange()
        for message in run:
            self._unconfirmed.add(message)
        frame_max = self._connection.params.frame_max
        for data in buffers(run, self._channel.channel_number, frame_max):
            emit(self._connection, data)

    def _has_had_its_turn(self) -> bool:
        return self._room.is_wanted and monotonic() >= self._turn_ends_at

    def _next_run(self) -> list[PendingMessage]:
        run: list[PendingMessage] = []
        if self._alone is not None and not self._alone.batch.is_finished:
            return run
        waiting = self._waiting
        while waiting:
            message = waiting[0]
            if message.batch.is_finished:
                waiting.popleft()
            elif not self._must_be_alone(message):
                message.is_sent = True
                run.append(waiting.popleft())
            elif run or self._unconfirmed.is_awaited():
                break
            else:
                message.is_sent = True
                self._alone = message
                return [waiting.popleft()]
        return run

    def _must_be_alone(self, message: PendingMessage) -> bool:
        return (
            message.is_risky
            or len(message.body) > self._largest_accepted
            or (bool(self._suspects) and message.routing_key in self._suspects)
            or self._topics.may_refuse(message.routing_key)
        )

    def _declare_exchange(self) -> None:
        """Declare the exchange passively, so that a missing one closes the channel first.

        The default exchange always exists, and RabbitMQ refuses to declare it.
        """
        if self.exchange and self._declared_at is None:
            self._declared_at = self._unconfirmed.next_tag
            self._channel.exchange_declare(self.exchange, passive=True, callback=self._on_declared)

    # Answers.

    def _on_declared(self, _: Any) -> None:
        self._declared_at = None

    def _on_confirm(self, frame: Any) -> None:
        method = frame.method
        outcome = CONFIRMED if isinstance(method, Basic.Ack) else NACK
        for message in self._unconfirmed.take(method.delivery_tag, method.multiple):
            self._note_accepted(message)
            message.settle(outcome)
        self._go_on()

    def _note_accepted(self, message: PendingMessage) -> None:
        """Record that the channel accepted a message."""
        if len(message.body) > self._largest_accepted:
            self._largest_accepted = len(message.body)
        if self._suspects:
            self._suspects.discard(message.routing_key)
        self._topics.note_accepted(message.routing_key)
        if message is self._alone:
            self._alone = None

    def _on_return(self, _: Any, method: Basic.Return, properties: Any, __: bytes) -> None:
        self._unconfirmed.give_back(properties.message_id, unroutable(method))
