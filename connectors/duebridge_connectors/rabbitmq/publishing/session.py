"""State of one open connection. All code runs on the connection's thread."""

from functools import partial
from threading import Lock
from typing import Any

import structlog

from duebridge.ports.publisher import CONFIRMED
from duebridge_connectors.rabbitmq.errors import BrokerBlocked, not_sent, unanswered
from duebridge_connectors.rabbitmq.publishing.batch import PublishBatch
from duebridge_connectors.rabbitmq.publishing.channel import ExchangeChannel
from duebridge_connectors.rabbitmq.publishing.room import ChannelRoom

MAX_CHANNELS = 100  # that are kept open

log = structlog.get_logger()


class PublishSession:
    """The channels of an open connection, and whether the broker blocks it."""

    def __init__(self, connection: Any, handover: Lock) -> None:
        self._alarm: str | None = None  # the reason of connection.blocked
        # Half of what the broker allows: the others are for pings, and for those being closed.
        allowed = (connection.params.channel_max or 2 * MAX_CHANNELS) // 2
        self._max_channels = min(MAX_CHANNELS, max(1, allowed))
        self._connection = connection
        self._handover = handover
        self._channels: dict[str, ExchangeChannel] = {}
        self._pings: set[PublishBatch] = set()
        self._room = ChannelRoom(connection, self._release_spare)
        connection.add_on_connection_blocked_callback(self._on_blocked)
        connection.add_on_connection_unblocked_callback(self._on_unblocked)

    @property
    def is_blocked(self) -> bool:
        """Whether the broker has blocked the connection."""
        return self._alarm is not None

    def accept(self, batch: PublishBatch) -> None:
        """Publish a batch or ping; refuse it while the connection is blocked."""
        if self._alarm is not None:
            batch.settle_rest(not_sent(BrokerBlocked(self._alarm)))
            return
        self._close_idle_channels()
        if not batch.groups:
            self._ping(batch)
        for exchange, messages in batch.groups.items():
            self._channel(exchange).put(messages)

    def give_up(self, error: BaseException) -> None:
        """Settle everything: the connection is gone."""
        sent, waiting = unanswered(error), not_sent(error)
        for channel in self._channels.values():
            channel.give_up(sent, waiting)
        for ping in self._pings:
            ping.settle_rest(waiting)

    def _channel(self, exchange: str) -> ExchangeChannel:
        channel = self._channels.get(exchange)
        if channel is None:
            channel = ExchangeChannel(self._connection, exchange, self._handover, self._room)
            self._channels[exchange] = channel
        return channel

    def _close_idle_channels(self) -> None:
        """Close the oldest idle channels: the broker limits channels per connection."""
        excess = len(self._channels) - self._max_channels
        if excess > 0:
            idle = [name for name, channel in self._channels.items() if channel.is_idle]
            for name in idle[:excess]:
                self._channels.pop(name).close()

    def _release_spare(self) -> None:
        for channel in self._channels.values():
            if channel.is_spare:
                channel.release()
                return

    # Pings open a channel, which is cheap.

    def _ping(self, batch: PublishBatch) -> bool:
        """Open a channel, now or in turn; return whether somebody waits for the answer."""
        if batch.is_finished:
            self._pings.discard(batch)
            return False
        self._pings.add(batch)
        self._room.take(partial(self._on_pong, batch), partial(self._ping, batch))
        return True

    def _on_pong(self, batch: PublishBatch, channel: Any) -> None:
        self._pings.discard(batch)
        batch.settle_rest(CONFIRMED)
        channel.close()

    # The broker's resource alarms.

    def _on_blocked(self, _: Any, frame: Any) -> None:
        self._alarm = str(frame.method.reason)
        log.warning("rabbitmq_blocked", reason=self._alarm)
        refused = not_sent(BrokerBlocked(self._alarm))
        for channel in self._channels.values():
            channel.refuse_waiting(refused)
        for ping in self._pings:
            ping.settle_rest(refused)

    def _on_unblocked(self, *_: Any) -> None:
        self._alarm = None
        log.info("rabbitmq_unblocked")
