"""One kafka-python producer, and everything of it that has no public name.

Nothing else in the connector touches an underscore of kafka-python. When a release moves one,
tests/contract/test_kafka_client.py fails.
"""

import threading
from collections.abc import Callable, Collection, Mapping
from contextlib import ExitStack, suppress
from functools import partial
from typing import Any

from kafka import KafkaProducer
from kafka import errors as vendor
from kafka.net.compat import KafkaNetClient
from kafka.net.selector import NetworkSelector
from kafka.protocol.metadata import MetadataRequest

from duebridge.ports.publisher import Delivery
from duebridge.ports.tls import hinted
from duebridge_connectors.kafka.attempt import Deadline, Refusal, not_sent
from duebridge_connectors.kafka.errors import RequestFailed, is_temporary, outcome_of
from duebridge_connectors.kafka.headers import kafka_headers
from duebridge_connectors.kafka.kafka_python.network import ConnectionManager
from duebridge_connectors.kafka.kafka_python.partitioner import RunPartitioner

_JOIN_S = 2.0
_UNKNOWN_TOPIC = vendor.UnknownTopicOrPartitionError.errno


class KafkaPythonClient:
    """A connected producer. Every method may be called by several threads at once.

    Its construction blocks for as long as `bootstrap_timeout_ms` says, and longer where a name
    resolves slowly. It raises whatever kafka-python does; nothing is left open then.
    """

    def __init__(self, config: Mapping[str, object]) -> None:
        # One thread at a time hands its batch over. Threads that did so together would fight over
        # the interpreter's lock record by record, for twice the CPU (connectors/README.md).
        self.turn = threading.Lock()
        self._metadata_lock = threading.Lock()
        with ExitStack() as undo:
            try:
                self._producer: Any = KafkaProducer(
                    kafka_client=partial(self._connect, undo),
                    partitioner=RunPartitioner(),
                    **config,
                )
            except vendor.KafkaTimeoutError as error:
                failure = self._net._manager.failure
                why = hinted(f"{_text(error)}: {_text(failure)}")
                raise vendor.KafkaTimeoutError(why) from failure
            undo.pop_all()

    def _connect(self, undo: ExitStack, **config: object) -> Any:
        net = NetworkSelector(**config)
        self._net: Any = KafkaNetClient(net, ConnectionManager(net, **config), **config)
        undo.callback(self._net.close)
        # KafkaProducer has the setting, but hands it to nobody: a broker that creates topics on
        # demand would create one for each misspelt target.
        self._net.cluster.config["allow_auto_create_topics"] = False
        return self._net

    def send(self, delivery: Delivery) -> Any:
        """Hand one delivery over and return kafka-python's future; call it with `turn` held.

        It blocks, up to `max_block_ms`, only for a topic that `knows` does not affirm. Raises what
        `KafkaProducer.send` does.
        """
        return self._producer.send(
            delivery.target.topic,
            delivery.body,
            delivery.key,
            kafka_headers(delivery.headers, delivery.properties),
        )

    def knows(self, topic: str) -> bool:
        """Tell whether the partitions of a topic are known, without asking the broker."""
        return self._net.cluster.partitions_for_topic(topic) is not None

    def look_up(self, topics: Collection[str], timeout_s: float) -> dict[str, Refusal | None]:
        """Ask the broker for topics; return None for each that is known now, or why it is not.

        A missing topic is not asked for again; `KafkaProducer.partitions_for` would do so ten times
        a second for ever.

        Raises `RequestFailed` if there is no answer within `timeout_s` seconds.
        """
        deadline = Deadline(timeout_s)
        errors = self._request_metadata(topics, timeout_s)
        tracked = self._net.cluster._topics
        for topic, error in errors.items():
            self._call_on_sender(tracked.add if error is None else tracked.discard, topic)
        self.refresh(deadline.left_s())
        return {topic: self._refusal(topic, error) for topic, error in errors.items()}

    def ping(self, timeout_s: float) -> None:
        """Raise `RequestFailed` unless a broker answers within `timeout_s` seconds."""
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
        return {topic: _error_of(codes.get(topic, _UNKNOWN_TOPIC), topic) for topic in topics}

    def refresh(self, timeout_s: float) -> None:
        """Learn anew who leads the partitions, as far as `timeout_s` seconds allow."""
        with suppress(RequestFailed):
            self._call_any_node(self._net.cluster.refresh_metadata, timeout_s)

    def is_alive(self) -> bool:
        """Tell whether its sender thread still runs."""
        return bool(self._producer._sender.is_alive())

    def retire(self, grace_s: float) -> None:
        """End it: what is under way has `grace_s` seconds, then becomes IllegalStateError.

        `KafkaProducer.close` would not do: it flushes first, and where a record stays unanswered it
        raises and closes nothing.
        """
        sender = self._producer._sender
        sender.initiate_close()
        sender.join(grace_s)
        sender.force_close()
        sender.join(_JOIN_S)
        self.abandon()

    def abandon(self) -> None:
        """Forget it without a word on its sockets, which after a fork are the parent's."""
        self._producer._unregister_cleanup()
        self._producer._closed = True

    def _refusal(self, topic: str, error: Exception | None) -> Refusal | None:
        if error is not None:
            return refusal_of(error)
        return None if self.knows(topic) else Refusal(not_sent(f"no partitions of {topic} yet"))

    def _call_any_node(self, call: Callable[[str], object], timeout_s: float) -> Any:
        """Call with the name of one bootstrap server after the other, until one answers.

        These have connections of their own. That of a leader is of no use: with one request in
        flight at most, it has no room for questions as long as there is something to publish.
        """
        deadline = Deadline(timeout_s)
        nodes = [node.node_id for node in self._net.cluster.bootstrap_brokers()]
        if not self._metadata_lock.acquire(timeout=deadline.left_s()):
            raise RequestFailed("other questions took all the time")
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
        """Call something on the sender's own thread, where most of kafka-python belongs."""
        try:
            return self._net._manager.call_soon(call, argument)
        except RuntimeError as error:  # its loop is closed
            raise RequestFailed(str(error)) from error


def refusal_of(error: BaseException) -> Refusal:
    """Return the refusal that an error means."""
    return Refusal(outcome_of(error), is_temporary(error))


def _error_of(code: int, topic: str) -> Exception | None:
    error: Exception = vendor.for_code(code)(topic)
    return None if code == 0 else error


def _text(error: Exception | None) -> str:
    return str(error.args[0] if error is not None and error.args else repr(error))
