"""A channel per exchange: what one exchange does to its channel, no other one notices.

Everything here runs on the connection's thread.
"""

from collections import deque
from collections.abc import Iterable
from threading import Lock
from typing import Any

from pika.exceptions import ChannelClosedByBroker, NackError, NoFreeChannels
from pika.spec import Basic

from duebridge.ports.publisher import CONFIRMED, Outcome
from duebridge_connectors.rabbitmq.batch import Parcel
from duebridge_connectors.rabbitmq.closing import judge
from duebridge_connectors.rabbitmq.errors import HeadersTooLarge, not_sent, outcome_of, unroutable
from duebridge_connectors.rabbitmq.window import Window
from duebridge_connectors.rabbitmq.wire import OVERHEAD_BYTES, buffers, emit

NACKED = outcome_of(NackError([]))
HUGE = 1 << 32


class ExchangeChannel:
    """Publishes to one exchange, in order, and learns what becomes of each parcel.

    Parcels are pipelined, except one that may close the channel: it goes when nothing else is under
    way, and nothing follows before it is settled. Besides the risky ones these are a body larger
    than any that this channel has taken, so always the first one, and a routing key that was under
    way when the channel was closed for a reason that could not be pinned on one parcel.

    `handover` is held while it is decided which parcels are sent: who else holds it may read
    `is_sent` and make a batch over, and knows what will never be sent.
    """

    def __init__(self, connection: Any, exchange: str, handover: Lock) -> None:
        self.exchange = exchange
        self._connection = connection
        self._handover = handover
        self._waiting: deque[Parcel] = deque()
        self._suspects: set[str] = set()
        self._channel: Any = None
        self._reset()

    def _reset(self) -> None:
        self._window = Window()
        self._alone: Parcel | None = None
        self._fits = -1  # the largest body taken
        self._asked_at: int | None = None  # the tag that follows an unanswered declaration

    @property
    def is_idle(self) -> bool:
        """Whether nothing waits and nothing is under way."""
        return not self._waiting and not self._window.unconfirmed

    def put(self, parcels: Iterable[Parcel]) -> None:
        """Publish parcels as soon as may be, after those that wait already."""
        frame_max = self._connection.params.frame_max or HUGE
        for parcel in parcels:
            if len(parcel.header) + OVERHEAD_BYTES <= frame_max:
                self._waiting.append(parcel)
            else:
                parcel.settle(outcome_of(HeadersTooLarge(f"a frame has {frame_max} bytes")))
        if self._channel is None:
            self._open()
        else:
            self._pump()

    def refuse_waiting(self, outcome: Outcome, routing_key: str | None = None) -> None:
        """Settle what was not sent: all, or what goes to one routing key."""
        kept: deque[Parcel] = deque()
        for parcel in self._waiting:
            if routing_key is None or parcel.routing_key == routing_key:
                parcel.settle(outcome)
            else:
                kept.append(parcel)
        self._waiting = kept

    def give_up(self, sent: Outcome, waiting: Outcome) -> None:
        """Settle everything: the connection is gone."""
        for parcel in self._window.unconfirmed.values():
            parcel.settle(sent)
        self.refuse_waiting(waiting)
        self._reset()
        self._channel = None

    def close(self) -> None:
        """Close the channel in order, if it is open."""
        if self._channel is not None and self._channel.is_open:
            self._channel.close()

    # Opening and closing.

    def _open(self) -> None:
        try:
            self._channel = self._connection.channel(on_open_callback=self._on_open)
        except NoFreeChannels as error:
            self.refuse_waiting(not_sent(error))
        else:
            self._channel.add_on_close_callback(self._on_close)

    def _on_open(self, channel: Any) -> None:
        channel.add_on_return_callback(self._on_return)
        channel.confirm_delivery(self._on_confirm)  # without waiting: publishing may follow at once
        self._pump()

    def _on_close(self, _: Any, reason: Exception) -> None:
        if not isinstance(reason, ChannelClosedByBroker):
            return  # the whole connection is closing, by either side: its owner gives up
        window = self._window
        judgement = judge(reason, window.unconfirmed, self._asked_at)
        self._reset()
        self._channel = None
        if judgement.is_doubtful:
            self._suspects.update(parcel.routing_key for parcel, _ in judgement.settled)
        for parcel, outcome in judgement.settled:
            parcel.settle(outcome)
        for parcel in judgement.unread:
            parcel.is_sent = False
        self._waiting.extendleft(reversed(judgement.unread))
        if judgement.refused is not None:
            self.refuse_waiting(judgement.refused, judgement.refused_key)
        if self._waiting:
            self._open()

    # Sending.

    def _pump(self) -> None:
        """Send what may go now."""
        if not self._waiting or not self._channel.is_open:
            return
        with self._handover:
            run = self._next_run()
        if not run:
            return
        self._ask_for_exchange()
        for parcel in run:
            self._window.add(parcel)
        frame_max = self._connection.params.frame_max
        for data in buffers(run, self._channel.channel_number, frame_max):
            emit(self._connection, data)

    def _next_run(self) -> list[Parcel]:
        run: list[Parcel] = []
        if self._alone is not None and not self._alone.batch.is_over:
            return run
        waiting = self._waiting
        while waiting:
            parcel = waiting[0]
            if parcel.batch.is_over:
                waiting.popleft()
            elif not self._must_go_alone(parcel):
                parcel.is_sent = True
                run.append(waiting.popleft())
            elif run or self._window.is_awaited():
                break
            else:
                parcel.is_sent = True
                self._alone = parcel
                return [waiting.popleft()]
        return run

    def _must_go_alone(self, parcel: Parcel) -> bool:
        return (
            parcel.is_risky
            or len(parcel.body) > self._fits
            or (bool(self._suspects) and parcel.routing_key in self._suspects)
        )

    def _ask_for_exchange(self) -> None:
        """Declare the exchange passively, so that a missing one closes the channel by that.

        The default exchange always exists, and RabbitMQ refuses to declare it.
        """
        if self.exchange and self._asked_at is None:
            self._asked_at = self._window.next_tag
            self._channel.exchange_declare(
                self.exchange, passive=True, callback=self._on_exchange_there
            )

    # Answers.

    def _on_exchange_there(self, _: Any) -> None:
        self._asked_at = None

    def _on_confirm(self, frame: Any) -> None:
        method = frame.method
        outcome = CONFIRMED if isinstance(method, Basic.Ack) else NACKED
        for parcel in self._window.take(method.delivery_tag, method.multiple):
            self._learn(parcel)
            parcel.settle(outcome)
        self._pump()

    def _learn(self, parcel: Parcel) -> None:
        """Remember what this channel has taken without being closed."""
        if len(parcel.body) > self._fits:
            self._fits = len(parcel.body)
        if self._suspects:
            self._suspects.discard(parcel.routing_key)
        if parcel is self._alone:
            self._alone = None

    def _on_return(self, _: Any, method: Basic.Return, properties: Any, __: bytes) -> None:
        self._window.give_back(properties.message_id, unroutable(method))
