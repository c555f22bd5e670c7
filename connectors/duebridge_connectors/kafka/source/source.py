"""A consumer group's member as a `Source`: one policy for both clients."""

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress

from duebridge.errors import ConfigError
from duebridge.ports.publisher import BrokerUnavailable
from duebridge.ports.source import Arrival, SourcePlan
from duebridge_connectors.kafka.source.consumer import CommitRefused, GroupConsumer
from duebridge_connectors.kafka.source.logs import CommittedOffset, Log, Logs
from duebridge_connectors.kafka.source.reconnect_backoff import ReconnectBackoff
from duebridge_connectors.kafka.source.standstill import FailedPlaces
from duebridge_connectors.kafka.source.watch import SILENCE_S, TopicRemade, TopicWatch

TEND_S = 1.0  # between two calls of the client while records are left over
SLICE_S = 0.5
LAST_COMMIT_S = 3.0  # of a close, for a rebalance to end
REBALANCE_POLL_S = 0.05
STEADY_S = 1.5 * SILENCE_S  # of a connection without records, to count as a success

log = logging.getLogger(__name__)


class KafkaSource:
    """A `Source` of one topic; see `duebridge.ports.source`.

    Everything before a committed offset was settled by a member of the group: each begins at the
    committed offset and commits exactly what was settled. So nothing is skipped, whoever owns a
    partition, and whatever a late member commits.
    """

    runs_ahead = True

    def __init__(self, connect: Callable[[], GroupConsumer], plan: SourcePlan) -> None:
        self._connect, self._plan = connect, plan
        self._topic = str(plan.source["topic"])
        self._lock = threading.Lock()
        self._closing = threading.Event()
        self._pace = ReconnectBackoff(self._closing)
        self._failed = FailedPlaces(self._topic)
        self._consumer: GroupConsumer | None = None
        self._ready: deque[Arrival] = deque()  # taken from the client, more than a batch holds
        self._owed: dict[Log, CommittedOffset] = {}  # settled, and not yet committed
        self._tended_at = 0.0

    def receive(self, wait_s: float) -> Sequence[Arrival]:
        """Return a batch; see `Source.receive`."""
        batch: list[Arrival] = []
        with self._lock, self._dropping():
            consumer = self._current(wait_s)
            if self._owed:
                self._commit(consumer)
            if not self._ready:
                self._ready.extend(taken := self._taken(consumer, wait_s))
                if self._failed.pass_by(taken, self._logs) and (taken or self._is_steady()):
                    self._pace.succeeded()
            elif time.monotonic() - self._tended_at > TEND_S:
                self._tended_at = time.monotonic()
                self._watch.check()
                consumer.hold()
            batch += self._cut()
        if not batch:
            self._failed.check(self._logs)
        return batch  # empty if the consumer was dropped

    def settle(self, arrivals: Sequence[Arrival]) -> None:
        """Commit the positions after the messages; see `Source.settle`.

        A commit that the group refuses is forgotten or made up for later: the messages may come
        again, and their places tell.
        """
        with self._lock, self._dropping():
            last = {arrival.handle[0]: arrival.handle for arrival in arrivals}
            for log_, epoch, offset in last.values():
                self._owed[log_] = CommittedOffset(offset + 1, epoch, log_.topic_id)
            if self._consumer is not None:
                self._commit(self._consumer)

    def keep_alive(self) -> None:
        """Stay in the group; see `Source.keep_alive`. Failures show at the next `receive`."""
        with self._lock:
            if self._consumer is None:
                return
            try:
                with self._dropping():
                    self._watch.check()
                    self._consumer.hold()
            except (BrokerUnavailable, ConfigError):
                pass

    def owns(self, arrival: Arrival) -> bool:
        """Return whether the message's partition is ours since it came; see `Source.owns`."""
        log_: Log = arrival.handle[0]
        return log_.is_owned

    def give_back(self) -> None:
        """Begin again at the committed offsets; see `Source.give_back`."""
        with self._lock:
            self._drop()

    def lag(self) -> int | None:
        """Return the number of waiting records; see `Source.lag`."""
        consumer = self._consumer
        behind = None if consumer is None else consumer.lag()
        return None if behind is None else behind + len(self._ready)

    def close(self) -> None:
        """Leave the group; see `Source.close`."""
        self._closing.set()
        with self._lock:
            if self._consumer is not None:
                self._commit_last(self._consumer)
            self._drop()

    def _current(self, wait_s: float) -> GroupConsumer:
        if self._closing.is_set():
            raise BrokerUnavailable("the source is closed")
        if self._consumer is None:
            self._pace.wait(wait_s)
            self._logs = Logs(self._plan.broker, self._topic, "")
            self._consumer = consumer = self._connect()
            self._watch = TopicWatch(consumer.ask_topic)
            self._logs = Logs(self._plan.broker, self._topic, self._watch.topic_id)
            if not self._watch.topic_id:
                log.warning(
                    "topic %s has no id: redeliveries are recognised by message id only",
                    self._topic,
                )
            consumer.join(self._logs)
            self._joined_at = time.monotonic()
        return self._consumer

    def _is_steady(self) -> bool:
        return time.monotonic() - self._joined_at >= STEADY_S

    def _taken(self, consumer: GroupConsumer, wait_s: float) -> list[Arrival]:
        """Take in slices, so that `close` and the watch need not wait for long."""
        give_up_at = time.monotonic() + wait_s
        while True:
            self._watch.check()
            left_s = max(0.0, give_up_at - time.monotonic())
            taken = consumer.take(min(left_s, SLICE_S), self._plan.batch)
            if taken or left_s <= SLICE_S or self._closing.is_set():
                return taken

    def _commit(self, consumer: GroupConsumer) -> None:
        owed = {log_: at for log_, at in self._owed.items() if log_.is_owned}
        self._owed = owed
        if not owed:
            return
        try:
            consumer.commit({log_.part: at for log_, at in owed.items()})
        except CommitRefused as refusal:
            log.info(
                "topic %s: commit refused, repeated while this member owns the partition: %s",
                self._topic,
                refusal,
            )
        else:
            self._owed = {}

    def _commit_last(self, consumer: GroupConsumer) -> None:
        """Commit what a rebalance held up, or leave it: it comes again, and its place tells."""
        give_up_at = time.monotonic() + LAST_COMMIT_S
        with suppress(BrokerUnavailable, ConfigError):
            while self._owed and time.monotonic() < give_up_at:
                self._commit(consumer)
                if self._owed:
                    consumer.hold()  # goes on with the rebalance
                    time.sleep(REBALANCE_POLL_S)

    def _cut(self) -> list[Arrival]:
        """Cut records to one batch, at least one record, of logs that this member still owns."""
        batch: list[Arrival] = []
        left = self._plan.batch_bytes
        ready = self._ready
        while ready and len(batch) < self._plan.batch:
            arrival = ready[0]
            left -= len(arrival.body or b"")
            if left < 0 and batch:
                break
            ready.popleft()
            if arrival.handle[0].is_owned:
                batch.append(arrival)
        return batch

    @contextmanager
    def _dropping(self) -> Iterator[None]:
        """Drop the consumer after an error, so that the next call connects again.

        After any error: it may have read records that nobody got, and a later commit would pass
        them.
        """
        try:
            yield
        except TopicRemade as error:
            log.warning("topic %s: %s; it is read from the beginning", self._topic, error)
            self._failed.forget()
            self._drop()
        except (BrokerUnavailable, ConfigError) as error:
            self._failed.note(error)
            self._drop()
            self._pace.failed(error)
            raise
        except Exception as error:
            self._drop()
            self._pace.failed(BrokerUnavailable(f"{type(error).__name__}: {error}"))
            raise

    def _drop(self) -> None:
        consumer, self._consumer = self._consumer, None
        self._ready.clear()
        self._owed.clear()
        if consumer is not None:
            self._logs.end(list(self._logs.owned))
            consumer.close()
