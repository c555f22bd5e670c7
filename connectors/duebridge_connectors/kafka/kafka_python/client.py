"""Wraps one kafka-python producer and the private attributes that the connector needs.

tests/contract/kafka/test_kafka_client.py fails if a release of kafka-python changes one of them.
"""

import threading
from collections.abc import Callable, Collection, Mapping
from contextlib import ExitStack, suppress
from functools import partial
from typing import Any

from kafka import KafkaProducer
from kafka import errors as vendor
from kafka.protocol.metadata import MetadataRequest

from duebridge.ports.publisher import Delivery
from duebridge.ports.tls import hinted
from duebridge_connectors.kafka.attempt import AttemptError, Deadline, not_sent
from duebridge_connectors.kafka.errors import RequestFailed, is_temporary, outcome_of, words_of
from duebridge_connectors.kafka.headers import kafka_headers
from duebridge_connectors.kafka.kafka_python.network import NetworkClient
from duebridge_connectors.kafka.kafka_python.partitioner import RunPartitioner
from duebridge_connectors.kafka.leaders import Leaders
from duebridge_connectors.kafka.login import LOGIN, Login

_JOIN_S = 2.0
_UNKNOWN_TOPIC = vendor.UnknownTopicOrPartitionError.errno


class KafkaPythonClient:
    """A connected producer. Thread-safe.

    The constructor blocks for up to `bootstrap_timeout_ms` plus name resolution. It raises
    kafka-python's errors and then leaves no socket open.
    """

    def __init__(self, config: Mapping[str, object]) -> None:
        # Serializes the handover of batches: concurrent threads would contend for the GIL on
        # every record and use twice the CPU (kafka/README.md).
        self.turn = threading.Lock()
        self.leaders = Leaders()
        self._metadata_lock = threading.Lock()
        login = config.get(LOGIN)
        self._login = login if isinstance(login, Login) else None
        config = {name: config[name] for name in config if name != LOGIN}
        with ExitStack() as undo:
            try:
                self._producer: Any = KafkaProducer(
                    kafka_client=partial(self._connect, undo),
                    partitioner=RunPartitioner(),
                    **config,
                )
            except vendor.KafkaTimeoutError as error:
                failure = self._net._manager.failure
                message = hinted(f"{words_of(error)}: {words_of(failure or error)}")
                raise vendor.KafkaTimeoutError(message) from failure
            # A batch that is too large is refused at once. kafka-python would halve it with a pause
            # each time, until some records are sent only after the publish deadline.
            self._producer._sender._can_split = lambda *_: False
            undo.pop_all()

    def _connect(self, undo: ExitStack, **config: object) -> Any:
        self._net: Any = NetworkClient(self._login, **config)
        undo.callback(self._net.close)
        # KafkaProducer ignores this option: a broker with topic auto-creation would create one
        # for each misspelt target.
        self._net.cluster.config["allow_auto_create_topics"] = False
        return self._net

    def send(self, delivery: Delivery) -> Any:
        """Hand over one delivery and return kafka-python's future; the caller holds `turn`.

        Blocks, up to `max_block_ms`, only for a topic that is not in the cached metadata. Raises
        the errors of `KafkaProducer.send`.
        """
        return self._producer.send(
            delivery.target.topic,
            delivery.body,
            delivery.key,
            kafka_headers(delivery.headers, delivery.properties),
        )

    def knows(self, topic: str) -> bool:
        """Return whether the cached metadata has the topic's partitions."""
        return self._net.cluster.partitions_for_topic(topic) is not None

    def look_up(self, topics: Collection[str], timeout_s: float) -> dict[str, AttemptError | None]:
        """Request the metadata of topics; return a refusal for each unusable one, else None.

        Missing topics are not tracked: `KafkaProducer.partitions_for` would request them ten times
        a second, without end. Raises `RequestFailed` without an answer within `timeout_s`.
        """
        deadline = Deadline(timeout_s)
        errors = self._request_metadata(topics, timeout_s)
        tracked = self._net.cluster._topics
        for topic, error in errors.items():
            self._call_on_sender(tracked.add if error is None else tracked.discard, topic)
        self.refresh(deadline.left_s())
        return {topic: self._refusal(topic, error) for topic, error in errors.items()}

    def ping(self, timeout_s: float) -> None:
        """Raise `RequestFailed` unless a broker answers within `timeout_s`."""
        self._request_metadata((), timeout_s)

    def _request_metadata(
        self, topics: Collection[str], timeout_s: float
    ) -> dict[str, Exception | None]:
        request = MetadataRequest(
            topics=[MetadataRequest.MetadataRequestTopic(name=topic) for topic in topics],
            allow_auto_topic_creation=False,
            include_cluster_authorized_operations=False,
            include_topic_authorized_operations=False,
        )
        response = self._call_any_node(partial(self._net._manager.send, request), timeout_s)
        codes = {topic.name: topic.error_code for topic in response.topics}
        for topic in response.topics:
            leaders = [(each.partition_index, each.leader_id) for each in topic.partitions]
            self.leaders.note(topic.name, leaders)
        return {topic: _error_of(codes.get(topic, _UNKNOWN_TOPIC), topic) for topic in topics}

    def refresh(self, timeout_s: float) -> None:
        """Refresh the metadata within `timeout_s`; a failure is ignored."""
        with suppress(RequestFailed):
            self._call_any_node(self._net.cluster.refresh_metadata, timeout_s)

    def is_alive(self) -> bool:
        """Return whether the sender thread runs."""
        return bool(self._producer._sender.is_alive())

    def retire(self, grace_s: float) -> None:
        """Stop the sender; requests in flight after `grace_s` fail with IllegalStateError.

        Not `KafkaProducer.close`, which flushes first and, if a record stays unanswered, raises
        without closing anything.
        """
        sender = self._producer._sender
        sender.initiate_close()
        sender.join(grace_s)
        sender.force_close()
        sender.join(_JOIN_S)
        self.abandon()

    def abandon(self) -> None:
        """Drop the producer without using its sockets, which the parent owns after a fork."""
        self._producer._unregister_cleanup()
        self._producer._closed = True

    def _refusal(self, topic: str, error: Exception | None) -> AttemptError | None:
        if error is not None:
            return refusal_of(error)
        return (
            None if self.knows(topic) else AttemptError(not_sent(f"no partitions of {topic} yet"))
        )

    def _call_any_node(self, call: Callable[[str], object], timeout_s: float) -> Any:
        """Call with one bootstrap server after the other until one answers.

        Bootstrap servers have separate connections. A leader's connection allows one request in
        flight and is busy with produce requests.
        """
        deadline = Deadline(timeout_s)
        nodes = [node.node_id for node in self._net.cluster.bootstrap_brokers()]
        if not self._metadata_lock.acquire(timeout=deadline.left_s()):
            raise RequestFailed("other metadata requests used up the deadline")
        try:
            for others in range(len(nodes) - 1, 0, -1):
                with suppress(RequestFailed):
                    return self._call_and_wait(
                        call, nodes[others], deadline.left_s() / (others + 1)
                    )
            return self._call_and_wait(call, nodes[0], deadline.left_s())
        finally:
            self._metadata_lock.release()

    def _call_and_wait(self, call: Callable[[str], object], node: str, timeout_s: float) -> Any:
        answered = threading.Event()
        future = self._call_on_sender(call, node)
        future.add_both(lambda _: answered.set())
        if not answered.wait(timeout_s):
            raise RequestFailed(f"no answer within {timeout_s:.1f} s")
        if future.exception is not None:
            raise RequestFailed(str(future.exception)) from future.exception
        return future.value

    def _call_on_sender(self, call: Callable[[str], object], argument: str) -> Any:
        """Schedule a call on the sender thread; most of kafka-python is not thread-safe."""
        try:
            return self._net._manager.call_soon(call, argument)
        except RuntimeError as error:  # the event loop is closed
            raise RequestFailed(str(error)) from error


def refusal_of(error: BaseException) -> AttemptError:
    """Return the refusal for an error."""
    return AttemptError(outcome_of(error), is_temporary(type(error)))


def part_of(future: Any) -> int:
    """Return the partition of a record that was handed over, -1 if it has none yet."""
    part: int | None = future._produce_future.topic_partition[1]
    return -1 if part is None else part


def _error_of(code: int, topic: str) -> Exception | None:
    error: Exception = vendor.for_code(code)(f"topic {topic}")
    return None if code == 0 else error
