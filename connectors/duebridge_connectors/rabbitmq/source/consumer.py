"""One connection that consumes one queue: from connecting to its first fault, after which it ends.

All calls come from one thread at a time, but for `wake`.
"""

from collections.abc import Sequence
from contextlib import suppress
from time import monotonic
from typing import Any, Final

from pika.connection import Parameters
from pika.exceptions import AMQPError, ChannelClosedByBroker, ConnectionClosedByClient

from duebridge.ports.publisher import BrokerUnavailable
from duebridge_connectors.rabbitmq.errors import root_cause
from duebridge_connectors.rabbitmq.source.connection import SourceConnection, StepLoop
from duebridge_connectors.rabbitmq.source.inbox import Inbox, RawMessage
from duebridge_connectors.rabbitmq.source.lag import LagChannel
from duebridge_connectors.rabbitmq.source.prefetch import Prefetch
from duebridge_connectors.rabbitmq.source.refusals import refusal, says_no_stream

LONGEST_STEP_S: Final = 1.0
FLUSH_S: Final = 5.0  # until an acknowledgement is written
CLOSE_S: Final = 1.0
ABORT_S: Final = 0.2


class QueueConsumer:
    """Consumes one queue or stream; `fault` says why it ended.

    A fault is BrokerUnavailable or ConfigError, and may be known before the end.
    """

    def __init__(
        self,
        parameters: Parameters,
        queue: str,
        offset: str | int,
        prefetch: Prefetch,
        *,
        looks: bool = False,
    ) -> None:
        """Connect, in the steps to come. `looks`: of a stream only one message is asked for."""
        self.fault: Exception | None = None
        self.is_consuming = False
        self.is_stream = True  # until the broker says that it is none
        self.lag: LagChannel | None = None
        self._queue = queue
        self._offset = offset
        self._prefetch = prefetch
        self._looks = looks
        self._inbox = Inbox(0)
        self._channel: Any = None
        self._consumer_tag = ""
        self._unsettled: dict[int, None] = {}  # delivery tags, in order
        self._loop = StepLoop()
        self._connection: Any = SourceConnection(
            parameters,
            on_open_callback=self._on_open,
            on_open_error_callback=self._on_closed,
            on_close_callback=self._on_closed,
            custom_ioloop=self._loop,
        )

    # For any thread.

    def wake(self) -> None:
        """End a wait."""
        self._loop.wake()

    # Driving it.

    def step(self, wait_s: float) -> None:
        """Read, write and run timers; wait for something to do at most so long."""
        try:
            self._loop.step(min(wait_s, LONGEST_STEP_S))
            if self.lag is not None:
                self.lag.ask()
        except Exception as error:  # pika raises any class on bytes that are no frame
            self.fail(BrokerUnavailable(f"{type(error).__name__}: {error}"))

    @property
    def held(self) -> Inbox:
        """The messages that were not taken yet."""
        return self._inbox

    def take(self, batch: int, batch_bytes: int) -> list[RawMessage]:
        """Take at most a batch of the received messages; they wait to be settled."""
        taken: list[RawMessage] = []
        size = 0
        messages = self._inbox.messages
        while messages and len(taken) < batch:
            size += len(messages[0].body)
            if taken and size > batch_bytes:
                break
            message = self._inbox.take()
            self._unsettled[message.tag] = None
            taken.append(message)
        return taken

    def adapt(self, taken: Sequence[RawMessage]) -> None:
        """Let the prefetch follow the size of the messages; a stream's stays."""
        if self.is_stream or not self.is_consuming or self.fault is not None:
            return
        largest = max(len(each.body) + len(each.header) for each in taken)
        if self._prefetch.follow(largest, len(self._unsettled) + len(self._inbox.messages)):
            self._consume_anew()

    def look_at(self, offset: int) -> None:
        """Ask for one message at another offset, on this connection, so of the same node."""
        self._offset = offset
        self._consume_anew()

    def acknowledge(self, tags: Sequence[int]) -> None:
        """Tell the broker that messages are settled; write it at once."""
        last = max(tags)
        for tag in tags:
            self._unsettled.pop(tag, None)
        if not self._unsettled or next(iter(self._unsettled)) > last:
            self._channel.basic_ack(last, multiple=True)
        else:
            for tag in tags:
                self._channel.basic_ack(tag)
        self._flush()

    def _flush(self) -> None:
        give_up_at = monotonic() + FLUSH_S
        while self._connection.has_unsent and self.fault is None:
            if monotonic() > give_up_at:
                self.fail(BrokerUnavailable(f"it reads nothing for {FLUSH_S:g} seconds"))
            self.step(0.1)

    def keep_alive(self, most_bytes: int) -> None:
        """Keep the connection; read on only while it holds less than a limit."""
        is_full = self._inbox.size >= most_bytes
        self._loop.pause_reading(is_full)
        if is_full:
            self._connection.note_alive()
        self.step(0)

    def read_on(self) -> None:
        """Read again after `keep_alive`."""
        self._loop.pause_reading(False)

    def close(self) -> None:
        """Close it: in order if it can be done soon. What was not settled goes back."""
        self._loop.pause_reading(False)
        self._inbox.messages.clear()
        if self._connection.is_open:
            with suppress(AMQPError):
                self._connection.close()
            self._step_until_closed(CLOSE_S)
        if not self._connection.is_closed:
            self._connection._terminate_stream(ConnectionClosedByClient(200, "given up"))
            self._step_until_closed(ABORT_S)
        self._loop.deactivate_poller()
        self._loop.close()

    def _step_until_closed(self, seconds: float) -> None:
        give_up_at = monotonic() + seconds
        while not self._connection.is_closed and (left_s := give_up_at - monotonic()) > 0:
            self._loop.step(left_s)

    def fail(self, fault: Exception) -> None:
        """Note what ended it; the first one counts."""
        self.fault = self.fault or fault

    # Answers of the broker.

    def _on_open(self, connection: Any) -> None:
        connection.read_in_large_pieces()
        connection.channel(on_open_callback=self._on_channel)

    def _on_channel(self, channel: Any) -> None:
        self._channel = channel
        channel.add_on_close_callback(self._on_channel_closed)
        channel.add_on_cancel_callback(self._on_cancelled)
        self._inbox = self._connection.inbox = Inbox(channel.channel_number)
        self._consume()

    def _consume(self) -> None:
        count = 1 if self._looks and self.is_stream else self._prefetch.count
        self._channel.basic_qos(prefetch_count=count)
        arguments = {"x-stream-offset": self._offset} if self.is_stream else None
        self._consumer_tag = self._channel.basic_consume(
            self._queue, _never, arguments=arguments, callback=self._on_consuming
        )

    def _on_consuming(self, _: Any) -> None:
        self.is_consuming = True
        if self.lag is None and not self.is_stream:
            self.lag = LagChannel(self._connection, self._queue)

    def _consume_anew(self) -> None:
        self.is_consuming = False
        self._channel.basic_cancel(self._consumer_tag, callback=self._on_cancelled_by_us)

    def _on_cancelled_by_us(self, _: Any) -> None:
        if self._channel.is_open:
            self._consume()

    def _on_cancelled(self, _: Any) -> None:
        self.fail(BrokerUnavailable(f"it cancelled the consumer of queue {self._queue!r}"))

    def _on_channel_closed(self, _: Any, reason: Exception) -> None:
        if not isinstance(reason, ChannelClosedByBroker):
            return  # the whole connection is closing
        if self.is_stream and not self.is_consuming and says_no_stream(reason):
            self.is_stream = False
            self._connection.channel(on_open_callback=self._on_channel)
            return
        self.fail(refusal(reason, self._queue))

    def _on_closed(self, _: Any, reason: Exception) -> None:
        error = root_cause(reason)
        self.fail(BrokerUnavailable(f"{type(error).__name__}: {error}"))


def _never(*_: object) -> None:
    """Stand in for a consumer's callback: its messages go into the inbox."""
