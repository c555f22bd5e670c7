"""The two brokers as a scenario sees them: a target of its own, and an independent consumer.

The consumer writes a history: every message it is given, copies included.
"""

import threading
import time
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Any, Protocol

import pika
from kafka import KafkaConsumer, TopicPartition
from kafka.admin import KafkaAdminClient
from pika.adapters.utils.connection_workflow import AMQPConnectorException

from duebridge.audit import HistoryEvent, Op, Phase, fingerprint
from duebridge.envelope import EnvelopeFields, Properties
from tests.faults.judgement import Historian, now_ms
from tests.faults.stack import Stack

SETTLED_WITHIN_S = 30.0
LOOK_EVERY_S = 0.05
HEARTBEAT_S = 4
AWAY = (pika.exceptions.AMQPError, AMQPConnectorException, OSError)


class BrokerSide(Protocol):
    """What a scenario needs of a broker; `service` is its name in deploy/local."""

    service: str
    settings: dict[str, Any]
    target: dict[str, str]
    dead_letter: dict[str, str]

    def fields(self, place: int) -> EnvelopeFields:
        """Return what an envelope has that only this broker carries."""

    def collect(self) -> None:
        """Write down everything that has arrived by now."""

    def close(self) -> None: ...


class KafkaSide:
    """Topics whose record time is the broker's own, read from offset 0 to the end."""

    service = "kafka"

    def __init__(
        self, stack: Stack, home: Path, name: str, *, linked: bool, in_cluster: bool
    ) -> None:
        self.bootstrap = stack.cluster.bootstrap if in_cluster else stack.kafka_bootstrap()
        way = stack.kafka_bootstrap(linked=True) if linked else self.bootstrap
        self.settings = {"type": "kafka", "bootstrap_servers": [way]}
        self._replicas = 3 if in_cluster else 1
        self.topic = name
        self.target = {"broker": "side", "topic": name}
        self.dead_letter = {"broker": "side", "topic": f"{name}-dlt"}
        self._history = Historian(home, "consumer")
        self._read: dict[str, dict[Any, int]] = {}
        self.create(name)
        self.create(f"{name}-dlt")

    def create(self, topic: str) -> None:
        """Make a topic, perhaps once more: it is then read from its beginning."""
        self._read[topic] = {}
        configs = {"message.timestamp.type": "LogAppendTime"}
        configs["min.insync.replicas"] = str((self._replicas + 1) // 2)
        wanted = {"num_partitions": 2, "replication_factor": self._replicas, "configs": configs}
        admin = KafkaAdminClient(bootstrap_servers=self.bootstrap)
        admin.create_topics({topic: wanted})
        admin.close()

    def fields(self, place: int) -> EnvelopeFields:
        return {"key": b"%d" % (place % 97)}

    def collect(self) -> None:
        self.collect_topic(self.target["topic"], Op.TARGET)
        self.collect_topic(self.dead_letter["topic"], Op.DEAD_LETTER)

    def collect_topic(self, topic: str, op: Op) -> int:
        """Write down what is new in a topic; returns how much."""
        read = self._read[topic]
        before = sum(read.values())
        for records in unread(self.bootstrap, topic, read):
            self._history.write(_read(record, op) for record in records)
        return sum(read.values()) - before

    def close(self) -> None:
        self._history.close()


def unread(bootstrap: str, topic: str, read: dict[Any, int]) -> Iterator[list[Any]]:
    """Yield what a topic has beyond the offsets that were read, until its end; notes them."""
    with closing(KafkaConsumer(bootstrap_servers=bootstrap, enable_auto_commit=False)) as consumer:
        places = [TopicPartition(topic, each) for each in consumer.partitions_for_topic(topic)]
        consumer.assign(places)
        for place in places:
            consumer.seek(place, read.get(place, 0))
        ends = consumer.end_offsets(places)
        while any(consumer.position(each) < ends[each] for each in places):
            yield from consumer.poll(timeout_ms=1000).values()
        read.update((place, consumer.position(place)) for place in places)


def _read(record: Any, op: Op) -> HistoryEvent:
    headers = tuple(record.headers)
    ids = [value.decode() for name, value in headers if name == "x-message-id"]
    print_of = fingerprint(record.value, record.key, headers)
    return HistoryEvent(record.timestamp, op, Phase.OK, ids[0], fingerprint=print_of)


class RabbitSide:
    """A durable queue behind an exchange, with a consumer attached before anything is due."""

    service = "rabbitmq"

    def __init__(self, stack: Stack, home: Path, name: str, *, linked: bool) -> None:
        self._url = stack.rabbitmq_url()
        self.settings = {"type": "rabbitmq", "url": stack.rabbitmq_url(linked=linked)}
        self.settings["options"] = {"heartbeat": HEARTBEAT_S}
        self.name = name
        self.target = {"broker": "side", "exchange": name, "routing_key": "due"}
        self.dead_letter = {"broker": "side", "exchange": "", "routing_key": f"{name}-dead"}
        self._queues = {name: Op.TARGET, f"{name}-dead": Op.DEAD_LETTER}
        self.declare(*self._queues)
        self._history = Historian(home, "consumer")
        self._copies: set[tuple[str, Any]] = set()
        self._idle = dict.fromkeys(self._queues, 0)
        self._stop, self._paused = threading.Event(), threading.Event()
        self._threads = [
            threading.Thread(target=self._consume, args=(each,), daemon=True)
            for each in self._queues
        ]
        for thread in self._threads:
            thread.start()

    def declare(self, *queues: str) -> None:
        """Make the exchange, these queues and the binding, whichever is not there."""
        with self._connected() as connection:
            channel = connection.channel()
            channel.exchange_declare(self.name, "direct", durable=True)
            for queue in queues:
                channel.queue_declare(queue, durable=True, arguments={"x-queue-type": "quorum"})
            channel.queue_bind(self.name, self.name, "due")

    def _connected(self) -> Any:
        return pika.BlockingConnection(pika.URLParameters(self._url))

    def fields(self, place: int) -> EnvelopeFields:
        return {"type": "fault", "correlation_id": str(place), "priority": place % 5}

    def unbind(self) -> None:
        with self._connected() as connection:
            connection.channel().queue_unbind(self.name, self.name, "due")

    def delete_exchange(self) -> None:
        with self._connected() as connection:
            connection.channel().exchange_delete(self.name)

    def pause(self) -> None:
        """Stop consuming, so that the queue fills, until `resume`."""
        self._paused.set()

    def resume(self) -> None:
        self._paused.clear()

    def _consume(self, queue: str) -> None:
        """A broker that goes away is waited for."""
        while not self._stop.is_set():
            with suppress(*AWAY):
                self._consume_once(queue)
            self._stop.wait(LOOK_EVERY_S)

    def _consume_once(self, queue: str) -> None:
        if self._paused.is_set():
            return
        with self._connected() as connection:
            channel = connection.channel()
            channel.basic_qos(prefetch_count=500)
            for method, properties, body in channel.consume(queue, inactivity_timeout=0.2):
                if method is None:
                    self._idle[queue] += 1
                else:
                    self._note(method, properties, body, self._queues[queue])
                    channel.basic_ack(method.delivery_tag)
                if self._stop.is_set() or self._paused.is_set():
                    return

    def _note(self, method: Any, properties: Any, body: bytes, op: Op) -> None:
        """Write a message down before it is acked; one given once more is no copy."""
        headers = {**(properties.headers or {})}
        headers.pop("x-delivery-count", None)  # a quorum queue's own, of what was given once more
        copy = (properties.message_id, headers.get("x-attempt"))
        if method.redelivered and copy in self._copies:
            return
        self._copies.add(copy)
        given = {name: getattr(properties, name) for name in Properties.__struct_fields__}
        print_of = fingerprint(body, None, tuple(headers.items()), given)
        event = HistoryEvent(now_ms(), op, Phase.OK, properties.message_id, fingerprint=print_of)
        self._history.write([event])

    def collect(self) -> None:
        """Wait until the queues are empty, and then until the consumer has nothing to do."""
        for queue in self._queues:
            self._wait_until_empty(queue)
            idle, give_up_at = self._idle[queue], time.monotonic() + SETTLED_WITHIN_S
            while self._idle[queue] == idle and time.monotonic() < give_up_at:
                self._stop.wait(LOOK_EVERY_S)

    def _wait_until_empty(self, queue: str) -> None:
        """Give up only where it gets no shorter: an outage leaves very much to read."""
        left = self._left(queue)
        give_up_at = time.monotonic() + SETTLED_WITHIN_S
        while left and time.monotonic() < give_up_at:
            self._stop.wait(LOOK_EVERY_S)
            before, left = left, self._left(queue)
            if left < before:
                give_up_at = time.monotonic() + SETTLED_WITHIN_S

    def _left(self, queue: str) -> int:
        with self._connected() as connection:
            declared = connection.channel().queue_declare(queue, passive=True)
            return int(declared.method.message_count)

    def close(self) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()
        with suppress(pika.exceptions.AMQPError), self._connected() as connection:
            for queue in self._queues:
                connection.channel().queue_delete(queue)
            connection.channel().exchange_delete(self.name)
        self._history.close()
