"""The source of an intake that reads RabbitMQ: see `duebridge.ports.source.Source`."""

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from random import uniform
from time import monotonic
from typing import NoReturn

import structlog
from pika.connection import Parameters
from pika.exceptions import AMQPError

from duebridge.errors import ConfigError, StoreError
from duebridge.ports.publisher import BrokerUnavailable
from duebridge.ports.source import Arrival, Positions, Source, SourcePlan
from duebridge_connectors.rabbitmq import quiet_client
from duebridge_connectors.rabbitmq.publishing.link import FIRST_DELAY_S, LASTED_S, MOST_DELAY_S
from duebridge_connectors.rabbitmq.settings import connection_parameters
from duebridge_connectors.rabbitmq.source.arrivals import Reader, stream_log
from duebridge_connectors.rabbitmq.source.consumer import QueueConsumer
from duebridge_connectors.rabbitmq.source.inbox import RawMessage
from duebridge_connectors.rabbitmq.source.lives import StreamLife, StreamLives, offset_in
from duebridge_connectors.rabbitmq.source.prefetch import Prefetch

SETTLED_LATER_S = 5.0  # the answers to a consumer's first words, beyond those of connecting
LOOK_S = 5.0  # for one message that a stream has

log = structlog.get_logger()


class RabbitSource:
    """A `Source` of one queue or stream, on one connection without a thread."""

    runs_ahead = False

    def __init__(
        self, read_parameters: Callable[[], Parameters], plan: SourcePlan, positions: Positions
    ) -> None:
        self._parameters = read_parameters()
        self._read_parameters = read_parameters
        self._plan = plan
        self._lives = StreamLives(positions, stream_log(plan))
        self._is_unsure = False  # of the stream's life, until its oldest message is there
        self._queue: str = plan.source["queue"]
        self._most_bytes: int = plan.source.get("prefetch_bytes", plan.in_hand_bytes)
        self._prefetch = Prefetch(plan.source.get("prefetch", plan.in_hand), self._most_bytes)
        self._lock = threading.Lock()  # of all that touches the connection
        self._is_closed = threading.Event()
        self._consumer: QueueConsumer | None = None
        self._reader: Reader
        self._life = 0  # counts connections: a delivery tag is one's own
        self._fails = 0
        self._connected_at = 0.0
        self._next_at = 0.0
        self._last_error = ""

    # For the intake's thread.

    def receive(self, wait_s: float) -> Sequence[Arrival]:
        """Return the received messages, at most a batch; see `Source.receive`."""
        with self._lock:
            give_up_at = monotonic() + wait_s
            consumer = self._filled(give_up_at)
            if self._is_unsure:
                if not consumer.held.messages:
                    return ()
                self._begin_life(consumer)
                consumer = self._filled(give_up_at)
            taken = consumer.take(self._plan.batch, self._plan.batch_bytes)
            if taken:
                consumer.adapt(taken)
            reader, life = self._reader, self._life
            return [reader.arrival(each, (life, each.tag)) for each in taken]

    def settle(self, arrivals: Sequence[Arrival]) -> None:
        """Acknowledge messages; see `Source.settle`."""
        if not arrivals:
            return
        with self._lock:
            consumer = self._consumer
            if consumer is None or arrivals[0].handle[0] != self._life:
                raise BrokerUnavailable("the connection that the messages came over is lost")
            with suppress(AMQPError):  # it is lost: its fault says so
                consumer.acknowledge([arrival.handle[1] for arrival in arrivals])
            self._raise_fault(consumer)

    def keep_alive(self) -> None:
        """Keep the connection while a batch waits; see `Source.keep_alive`."""
        with self._lock:
            if self._consumer is not None:
                self._consumer.keep_alive(self._most_bytes)

    def owns(self, arrival: Arrival) -> bool:  # noqa: ARG002 - see the protocol
        """Return True: a queue takes nothing from its consumer; `settle` tells of a lost one."""
        return True

    def give_back(self) -> None:
        """Close the connection, which requeues what is unsettled; see `Source.give_back`."""
        with self._lock:
            self._drop()

    # For any thread.

    def lag(self) -> int | None:
        """Return the number of ready messages; see `Source.lag`. None for a stream."""
        consumer = self._consumer
        return None if consumer is None or consumer.lag is None else consumer.lag.count

    def close(self) -> None:
        """Close the connection; see `Source.close`."""
        self._is_closed.set()
        if (consumer := self._consumer) is not None:
            with suppress(Exception):  # the other thread has closed it
                consumer.wake()
        with self._lock:
            self._drop()

    # Connecting.

    def _connected(self, give_up_at: float) -> QueueConsumer:
        if self._is_closed.is_set():
            raise BrokerUnavailable("the source is closed")
        if self._consumer is None:
            self._wait_for_turn(give_up_at)
            self._connect()
        assert self._consumer is not None  # noqa: S101 - for the type checker
        return self._consumer

    def _wait_for_turn(self, give_up_at: float) -> None:
        """Wait until another connection may be tried; raises where that is later."""
        now = monotonic()
        self._is_closed.wait(max(0.0, min(self._next_at, give_up_at) - now))
        if self._is_closed.is_set() or monotonic() < self._next_at:
            raise BrokerUnavailable(self._last_error or "the source is closed")

    def _connect(self) -> None:
        """Connect; of a stream that was read before, look at its oldest message first."""
        with self._positions_known():
            life = self._lives.known()
        is_unread = life.number == 0 and life.position is None
        if is_unread and self._plan.source.get("offset") == "next":
            self._consume(life, "next")
            return
        self._consume(life, "first", looks=True)
        assert self._consumer is not None  # noqa: S101 - for the type checker
        self._is_unsure = self._consumer.is_stream

    def _begin_life(self, consumer: QueueConsumer) -> None:
        """Go on in the life of the stream that has the message that was looked at."""
        oldest, look = consumer.take(1, 1)[0], partial(self._look, consumer)
        with self._positions_known():
            known = self._lives.known()  # another process may have begun one meanwhile
            life = self._lives.present(known, oldest, look)
        if life is not known:
            log.warning("rabbitmq_stream_made_anew", queue=self._queue, log=life.log)
        self._warn_of_dropped(life, offset_in(oldest))
        self._drop()
        self._consume(life, "first" if life.position is None else life.position + 1)

    def _warn_of_dropped(self, life: StreamLife, oldest: int) -> None:
        """Tell what retention dropped unread: the broker goes on behind it, and says nothing."""
        if life.position is not None and oldest > life.position + 1:
            unread = {"first_offset": life.position + 1, "last_offset": oldest - 1}
            log.warning("rabbitmq_stream_dropped_unread", queue=self._queue, **unread)

    def _look(self, consumer: QueueConsumer, offset: int) -> RawMessage:
        """Return the stream's message at an offset; raises if this node has none there by now."""
        consumer.look_at(offset)
        give_up_at = monotonic() + LOOK_S
        while not (consumer.held.messages or consumer.fault or self._is_closed.is_set()):
            if monotonic() > give_up_at:
                consumer.fail(_undecided(self._queue, offset))
            consumer.step(max(0.0, give_up_at - monotonic()))
        if consumer.held.messages and offset_in(consumer.held.messages[0]) != offset:
            consumer.fail(_undecided(self._queue, offset))
        self._raise_fault(consumer)
        return consumer.take(1, 1)[0]

    @contextmanager
    def _positions_known(self) -> Iterator[None]:
        try:
            yield
        except StoreError as error:
            self._drop()
            self._postpone(text := f"the stream's position is not known: {error}")
            raise BrokerUnavailable(text) from error

    def _consume(self, life: StreamLife, offset: str | int, *, looks: bool = False) -> None:
        """Connect, with the password and the certificate that the files have now."""
        with suppress(ConfigError):  # a file that is being replaced
            self._parameters = self._read_parameters()
        self._life += 1
        consumer = QueueConsumer(self._parameters, self._queue, offset, self._prefetch, looks=looks)
        self._consumer = consumer
        give_up_at = monotonic() + self._parameters.stack_timeout + SETTLED_LATER_S
        while not (consumer.is_consuming or consumer.fault or self._is_closed.is_set()):
            if monotonic() > give_up_at:
                consumer.fail(BrokerUnavailable("no answer of the broker"))
            consumer.step(1.0)
        self._raise_fault(consumer)
        self._connected_at = monotonic()
        self._last_error = ""
        user = getattr(self._parameters.credentials, "username", None)
        self._reader = Reader(self._plan, user, life.log if consumer.is_stream else "")
        log.info("rabbitmq_consuming", queue=self._queue, stream=consumer.is_stream)

    def _filled(self, give_up_at: float) -> QueueConsumer:
        """Return the consumer, once it holds a batch or it is time; raises its fault."""
        consumer = self._connected(give_up_at)
        consumer.read_on()
        self._fill(consumer, give_up_at)
        self._raise_fault(consumer)
        return consumer

    def _fill(self, consumer: QueueConsumer, give_up_at: float) -> None:
        """Read until a batch is held, or nothing more is there, or it is time."""
        held, plan = consumer.held, self._plan
        while consumer.fault is None and not self._is_closed.is_set():
            count = len(held.messages)
            if count >= plan.batch or held.size >= plan.batch_bytes:
                return
            left_s = give_up_at - monotonic()
            if not count and left_s <= 0:
                return
            consumer.step(0.0 if count else left_s)
            held = consumer.held
            if count and len(held.messages) == count:
                return

    def _raise_fault(self, consumer: QueueConsumer) -> None:
        """Raise what ended a connection, once it is closed."""
        if self._is_closed.is_set():
            self._drop()
            raise BrokerUnavailable("the source is closed")
        if consumer.fault is None:
            return
        fault = consumer.fault
        self._drop()
        self._postpone(str(fault))
        self._raise(fault)

    def _raise(self, fault: Exception) -> NoReturn:
        raise fault

    def _drop(self) -> None:
        consumer, self._consumer, self._is_unsure = self._consumer, None, False
        if consumer is not None:
            consumer.close()

    def _postpone(self, error: str) -> None:
        """Set when to connect again: later each time, unless a connection has lasted."""
        if self._connected_at and monotonic() - self._connected_at > LASTED_S:
            self._fails = 0
        self._connected_at = 0.0
        most_s = min(MOST_DELAY_S, FIRST_DELAY_S * 2**self._fails)
        self._fails = min(self._fails + 1, 10)
        delay_s = uniform(most_s / 2, most_s)  # noqa: S311 - no secret
        self._next_at = monotonic() + delay_s
        say = log.debug if error == self._last_error else log.warning
        say("rabbitmq_not_consuming", queue=self._queue, error=error, retry_in_s=round(delay_s, 2))
        self._last_error = error


def _undecided(queue: str, offset: int) -> BrokerUnavailable:
    said = f"stream {queue!r} ends before offset {offset}, where it had a message"
    return BrokerUnavailable(f"{said}: this node's replica lags, or the stream was recreated")


def open_source(settings: Mapping[str, object], plan: SourcePlan, positions: Positions) -> Source:
    """Return a source, which connects on first use. Raises `ConfigError`."""
    quiet_client()
    return RabbitSource(partial(connection_parameters, settings), plan, positions)
