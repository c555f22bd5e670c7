"""A group's member with kafka-python. Uses some of its private parts, as the producer does.

tests/contract/kafka/test_kafka_sources.py fails if a release of kafka-python changes one of them.
"""

import logging
import threading
import time
import uuid
from base64 import urlsafe_b64encode
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from typing import Any

from kafka import ConsumerRebalanceListener, KafkaConsumer, OffsetAndMetadata, TopicPartition
from kafka import errors as vendor
from kafka.protocol.metadata import MetadataRequest

from duebridge.errors import BridgeError
from duebridge.ports.publisher import BrokerUnavailable
from duebridge.ports.source import Arrival
from duebridge.ports.tls import hinted
from duebridge_connectors.kafka.errors import words_of
from duebridge_connectors.kafka.kafka_python.network import NetworkClient
from duebridge_connectors.kafka.login import Login
from duebridge_connectors.kafka.source.consumer import CommitRefused
from duebridge_connectors.kafka.source.errors import REFUSALS, failure_from
from duebridge_connectors.kafka.source.kafka_python.fetched_records import (
    FetchedRecord,
    FetchedRecords,
    PollFull,
    PollRoom,
)
from duebridge_connectors.kafka.source.logs import CommittedOffset, Log, Logs

logger = logging.getLogger(__name__)

REQUEST_MS = 5_000
CLOSE_MS = 3_000
COMMIT_MS = 5_000
SLICE_S = 0.1  # of a wait: a partition that was just assigned shall not wait for the rest
ENDS_S = 5.0  # between two questions for the logs' ends while nothing is fetched


class KafkaPythonConsumer:
    """A `Consumer`; the constructor connects, for up to `bootstrap_timeout_ms`."""

    def __init__(self, config: Mapping[str, object], login: Login, topic: str) -> None:
        """Connect. Raises `BrokerUnavailable` and `ConfigError`, and then leaves no socket open."""
        self._topic, self._login = topic, login
        self._manager: Any = None
        self._ends: dict[int, int] = {}
        self._asked_ends_at = 0.0
        with ExitStack() as undo:
            connect = partial(self._connect, undo)
            try:
                self._consumer: Any = KafkaConsumer(kafka_client=connect, **config)
            except (vendor.KafkaError, OSError, ValueError) as error:
                cause = getattr(self._manager, "failure", None) or error
                said = f"{words_of(error)}: {words_of(cause)}"
                raise BrokerUnavailable(hinted(f"no connection: {said}")) from error
            undo.pop_all()
        self._room = PollRoom()
        self._consumer._fetcher.PartitionRecords = partial(FetchedRecords, room=self._room)
        subscription = self._consumer._subscription
        ask = subscription.request_offset_reset
        subscription.request_offset_reset = partial(self._reset, subscription, ask)

    def _reset(self, subscription: Any, ask: Any, tp: Any, strategy: Any = None) -> None:
        """Let a partition go on at its beginning; say so, as librdkafka does, unless we asked."""
        state = subscription.assignment.get(tp)
        if strategy is None and state is not None and state.position is not None:
            logger.warning(
                "topic %s, partition %d: offset %d is not there any more; reading goes on at the"
                " oldest record: what retention dropped between them was not taken in",
                *(self._topic, tp.partition, state.position.offset),
            )
        ask(tp, strategy)

    def _connect(self, undo: ExitStack, **config: object) -> Any:
        client = NetworkClient(self._login, **config)
        self._manager = client._manager
        undo.callback(client.close)
        client.cluster.config["allow_auto_create_topics"] = False
        return client

    def ask_topic(self) -> "MetadataQuestion":
        """Ask for the topic's id; see `Consumer`."""
        return MetadataQuestion(self._manager, self._topic)

    def join(self, logs: Logs) -> None:
        """Become a member; see `Consumer`."""
        self._logs = logs
        self._placed: set[Log] = set()
        with _translated():  # a leader of the group without metadata would join time and again
            known = self._manager.call_soon(self._know_topic)
            self._consumer._net.run(self._manager.wait_for, known, REQUEST_MS)
        self._consumer.subscribe([self._topic], listener=_Listener(self._consumer, logs))

    async def _know_topic(self) -> None:
        cluster = self._manager.cluster
        await cluster.set_topics([self._topic])
        if cluster.partitions_for_topic(self._topic) is None:  # the answer to an earlier question
            await cluster.request_update()

    def take(self, wait_s: float, most: int) -> list[Arrival]:
        """Return records; see `Consumer`."""
        give_up_at = time.monotonic() + wait_s
        with _translated():
            self._resume()
            while True:
                left_s = max(0.0, give_up_at - time.monotonic())
                placed = frozenset(self._placed)  # what was read before its beginning is not it
                polled = self._poll(int(min(left_s, SLICE_S) * 1000), most)
                self._place()
                if polled or left_s <= 0:
                    return [
                        each for tp in polled for each in self._arrivals(placed, tp, polled[tp])
                    ]

    def hold(self) -> None:
        """Poll with all partitions paused; see `Consumer`."""
        with _translated():
            for log in list(self._logs.owned.values()):
                self._if_assigned(self._consumer.pause, log)
            late = self._poll(0)
            for tp, records in late.items():  # paused too late: they are read again
                self._consumer.seek(tp, records[0].offset)
            self._refresh_ends()

    def commit(self, positions: Mapping[int, CommittedOffset]) -> None:
        """Commit; see `Consumer`."""
        offsets = {
            TopicPartition(self._topic, part): OffsetAndMetadata(at.offset, at.topic_id, at.epoch)
            for part, at in positions.items()
        }
        try:
            self._consumer.commit(offsets, timeout_ms=COMMIT_MS)
        except tuple(REFUSALS) as error:
            raise CommitRefused(f"{type(error).__name__}: {words_of(error)}") from error
        except vendor.KafkaError as error:
            raise failure_from(error) from error

    def lag(self) -> int | None:
        """Return the number of waiting records; see `GroupConsumer`."""
        if not hasattr(self, "_logs") or not self._logs.was_assigned:
            return None
        states = self._consumer._subscription.assignment
        behind = 0
        for part in self._logs.owned:
            state = states.get(TopicPartition(self._topic, part))
            position = None if state is None else state.position
            end = max(self._ends.get(part, -1), (state and state.highwater) or -1)
            if position is None or end < 0:
                return None
            behind += max(0, end - position.offset)
        return behind

    def close(self) -> None:
        """Leave the group; see `Consumer`."""
        with suppress(Exception):  # a broker that is away hears nothing
            self._consumer.close(autocommit=False, timeout_ms=CLOSE_MS)

    def _poll(self, wait_ms: int, most: int | None = None) -> Any:
        """Poll, and take the answer of a join that an earlier poll did not wait for.

        Without this kafka-python 3.0.12 forgets a join that its leader began for new metadata: it
        never commits again, and sends no heartbeat.
        """
        coordinator = self._consumer._coordinator
        join = coordinator._join_task
        if join is not None:
            coordinator.rejoin_needed = True
            if not isinstance(join, _OpenJoin):
                coordinator._join_task = _OpenJoin(join)
        self._room.begin()
        try:
            return self._consumer.poll(wait_ms, most)
        except PollFull:  # the poll before was full
            return {}

    def _arrivals(
        self, placed: Collection[Log], tp: Any, records: Iterable[FetchedRecord]
    ) -> list[Arrival]:
        log = self._logs.owned.get(tp.partition)
        if log is None or log not in placed:
            return []  # taken away meanwhile; a new assignment reads them again
        return [
            log.arrival(r.epoch, r.offset, r.timestamp_ms, r.key, r.value, r.headers, r.unreadable)
            for r in records
        ]

    def _place(self) -> None:
        """Begin newly assigned partitions, which the listener paused, where the group stopped."""
        fresh = {
            TopicPartition(self._topic, log.part): log
            for log in self._logs.owned.values()
            if log not in self._placed
        }
        if not fresh:
            return
        committed = self._consumer._coordinator.fetch_committed_offsets(list(fresh), COMMIT_MS)
        self._ends.update(self._end_offsets(fresh))
        for tp, log in fresh.items():
            start = self._logs.start_of(_position(committed.get(tp)))
            if self._if_assigned(partial(self._seek, start), log):
                self._placed.add(log)
                self._if_assigned(self._consumer.resume, log)
        self._placed = {log for log in self._placed if log.is_owned}

    def _seek(self, start: CommittedOffset | None, tp: Any) -> None:
        if start is None:
            self._consumer.seek_to_beginning(tp)
        else:  # with the epoch, so that a truncation since is noticed
            place = OffsetAndMetadata(start.offset, "", start.epoch)
            self._consumer._subscription.seek(tp, place)

    def _resume(self) -> None:
        for log in self._placed:
            self._if_assigned(self._consumer.resume, log)

    def _if_assigned(self, call: Any, log: Log) -> bool:
        """Call with a partition, unless the network thread has just taken it away."""
        try:
            call(TopicPartition(self._topic, log.part))
        except (KeyError, ValueError, vendor.IllegalStateError):
            return False
        return True

    def _refresh_ends(self) -> None:
        now = time.monotonic()
        if now - self._asked_ends_at >= ENDS_S:
            self._asked_ends_at = now
            parts = [TopicPartition(self._topic, part) for part in self._logs.owned]
            self._ends.update(self._end_offsets(parts))

    def _end_offsets(self, parts: Iterable[Any]) -> dict[int, int]:
        with suppress(vendor.KafkaError):  # a figure for a metric alone
            found = self._consumer.end_offsets(list(parts), timeout_ms=1_000)
            return {tp.partition: end for tp, end in found.items()}
        return {}


class _Listener(ConsumerRebalanceListener):  # type: ignore[misc]
    """Keeps the logs; runs on the network thread, so it only notes."""

    def __init__(self, consumer: Any, logs: Logs) -> None:
        self._consumer, self._logs = consumer, logs

    def on_partitions_assigned(self, assigned: Iterable[Any]) -> None:
        """Own partitions, paused until their beginning is known."""
        self._consumer.pause(*assigned)
        self._logs.begin(tp.partition for tp in assigned)

    def on_partitions_revoked(self, revoked: Iterable[Any]) -> None:
        """Own them no longer."""
        self._logs.end(tp.partition for tp in revoked)


class _OpenJoin:
    """The future of a join that never looks done: of one that does the coordinator joins again."""

    is_done = False

    def __init__(self, join: Any) -> None:
        self.add_callback, self.add_errback = join.add_callback, join.add_errback


class MetadataQuestion:
    """A metadata request for one topic; see `Question`."""

    def __init__(self, manager: Any, topic: str) -> None:
        self._topic = topic
        self._answered = threading.Event()
        request = MetadataRequest(
            topics=[MetadataRequest.MetadataRequestTopic(name=topic)],
            allow_auto_topic_creation=False,
            include_cluster_authorized_operations=False,
            include_topic_authorized_operations=False,
        )
        self._future = manager.call_soon(manager.send, request)
        self._future.add_both(lambda _: self._answered.set())

    def is_answered(self) -> bool:
        """Return whether there is an answer; see `Question`."""
        return self._answered.is_set()

    def answer(self, within_s: float) -> str:
        """Return the topic's id; see `Question`."""
        if not self._answered.wait(within_s):
            raise BrokerUnavailable(f"no answer within {within_s:.1f} s")
        if self._future.exception is not None:
            raise failure_from(self._future.exception)
        (found,) = self._future.value.topics
        if found.error_code:
            raise failure_from(vendor.for_code(found.error_code)(f"topic {self._topic}"))
        return _text_of(found.topic_id)


def _text_of(topic_id: uuid.UUID | None) -> str:
    """Return an id as Kafka's own tools write it."""
    if topic_id is None or not topic_id.int:
        return ""
    return urlsafe_b64encode(topic_id.bytes).decode().rstrip("=")


def _position(found: Any) -> CommittedOffset | None:
    if found is None:
        return None
    return CommittedOffset(found.offset, found.leader_epoch, found.metadata or "")


@contextmanager
def _translated() -> Iterator[None]:
    try:
        yield
    except BridgeError:
        raise
    except Exception as error:  # of the client, or a batch that it cannot read
        raise failure_from(error) from error
