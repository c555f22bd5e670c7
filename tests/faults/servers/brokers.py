"""The two brokers as a scenario sees them: targets of its own, and an independent consumer.

The consumer writes a history: every message it is given, copies included. `settings`, `target` and
`dead_letter` of a side are as the configuration has them; `service` is its name in deploy/local.
"""

import threading
import time
from collections.abc import Iterator
from contextlib import closing, suppress
from typing import Any, TypeAlias

import pika
from kafka import KafkaConsumer, TopicPartition
from kafka.admin import KafkaAdminClient
from pika.adapters.utils.connection_workflow import AMQPConnectorException

from duebridge.audit import fingerprint
from duebridge.envelope import EnvelopeFields, Properties
from tests.faults.servers.kafka_cluster import NODES
from tests.faults.servers.stack import Stack
from tests.support.model.histories import Historian, HistoryEvent, Phase, Subject, now_ms

SETTLED_WITHIN_S = 30.0
LOOK_EVERY_S = 0.05
HEARTBEAT_S = 4
AWAY = (pika.exceptions.AMQPError, AMQPConnectorException, OSError)


class KafkaSide:
    """Topics whose record time is the broker's own, read from offset 0 to the end."""

    service = "kafka"

    def __init__(
        self,
        stack: Stack,
        history: Historian,
        name: str,
        broker: str,
        *,
        linked: bool,
        in_cluster: bool,
    ) -> None:
        self.bootstrap = stack.cluster.bootstrap if in_cluster else stack.kafka_bootstrap()
        way = stack.kafka_bootstrap(linked=True) if linked else self.bootstrap
        self.settings = {"type": "kafka", "bootstrap_servers": [way]}
        self._replicas = len(NODES) if in_cluster else 1
        self._broker, self.topic = broker, name
        self._history = history
        self._subjects: dict[str, Subject] = {}
        self._read: dict[str, dict[Any, int]] = {}
        self.target = self.open("")
        self.dead_letter = self.open("-dlt", dead=True)

    def open(self, word: str, *, dead: bool = False, is_missing: bool = False) -> dict[str, str]:
        """Return one more target, which is read too; a missing one is not made."""
        target = {"broker": self._broker, "topic": f"{self.topic}{word}"}
        self._subjects[target["topic"]] = Subject.DEAD_LETTER if dead else Subject.TARGET
        if not is_missing:
            self.make(target)
        return target

    def make(self, target: dict[str, str]) -> None:
        self.create(target["topic"], num_partitions=2, replication_factor=self._replicas)

    def create(self, topic: str, *, configs: dict[str, str] | None = None, **wanted: Any) -> None:
        """Make a topic, perhaps once more: it is then read from its beginning."""
        self._read[topic] = {}
        least = {"min.insync.replicas": str(wanted.get("replication_factor", 1))}
        every = {"message.timestamp.type": "LogAppendTime", **least, **(configs or {})}
        with self.admin() as admin:
            admin.create_topics({topic: {**wanted, "configs": every}})

    def admin(self) -> Any:
        return closing(KafkaAdminClient(bootstrap_servers=self.bootstrap))

    def remove(self, target: dict[str, str]) -> None:
        with self.admin() as admin:
            admin.delete_topics([target["topic"]])
        del self._read[target["topic"]]

    def fields(self, place: int) -> EnvelopeFields:
        return {"key": b"%d" % (place % 97)}

    def collect(self) -> None:
        """Write down everything that has arrived by now."""
        for topic in self._read:
            self.collect_topic(topic)

    def collect_topic(self, topic: str) -> int:
        """Write down what is new in a topic; returns how much."""
        read, subject = self._read[topic], self._subjects[topic]
        before = sum(read.values())
        for records in unread(self.bootstrap, topic, read):
            self._history.write(_read(record, subject) for record in records)
        return sum(read.values()) - before

    def close(self) -> None:
        """Topics stay: they go with the run's broker."""


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


def _read(record: Any, subject: Subject) -> HistoryEvent:
    headers = tuple(record.headers)
    ids = [value.decode() for name, value in headers if name == "x-message-id"]
    print_of = fingerprint(record.value, record.key, headers)
    return HistoryEvent(record.timestamp, subject, Phase.OK, ids[0], fingerprint=print_of)


class RabbitSide:
    """Durable queues behind exchanges, each with a consumer attached before anything is due."""

    service = "rabbitmq"

    def __init__(
        self, stack: Stack, history: Historian, name: str, broker: str, *, linked: bool
    ) -> None:
        self._url = stack.rabbitmq_url()
        self.settings = {"type": "rabbitmq", "url": stack.rabbitmq_url(linked=linked)}
        self.settings["options"] = {"heartbeat": HEARTBEAT_S}
        self._broker, self.name = broker, name
        self._history = history
        self._queues: dict[str, Subject] = {}
        self._copies: set[tuple[str, Any]] = set()
        self._idle: dict[str, int] = {}
        self._stop, self._paused = threading.Event(), threading.Event()
        self._threads: list[threading.Thread] = []
        self.target = self.open("")
        self.dead_letter = self.open("-dead", dead=True)

    def open(self, word: str, *, dead: bool = False, is_missing: bool = False) -> dict[str, str]:
        queue = f"{self.name}{word}"
        target = {"broker": self._broker, "exchange": queue, "routing_key": "due"}
        if not is_missing:
            self.make(target)
        self.declare_queue(queue)
        self._queues[queue], self._idle[queue] = Subject.DEAD_LETTER if dead else Subject.TARGET, 0
        thread = threading.Thread(target=self._consume, args=(queue,), daemon=True)
        thread.start()
        self._threads.append(thread)
        return target

    def make(self, target: dict[str, str], kind: str = "direct") -> None:
        """Make the exchange, the queue of its name and the binding, whichever is not there."""
        exchange = target["exchange"]
        self.declare_queue(exchange)
        with self.connected() as connection:
            channel = connection.channel()
            channel.exchange_declare(exchange, kind, durable=True)
            channel.queue_bind(exchange, exchange, target["routing_key"])

    def declare_queue(self, queue: str, kind: str = "quorum") -> None:
        with self.connected() as connection:
            arguments = {"x-queue-type": kind}
            connection.channel().queue_declare(queue, durable=True, arguments=arguments)

    def remove(self, target: dict[str, str]) -> None:
        with self.connected() as connection:
            connection.channel().exchange_delete(target["exchange"])

    def connected(self) -> Any:
        return pika.BlockingConnection(pika.URLParameters(self._url))

    def fields(self, place: int) -> EnvelopeFields:
        return {"type": "fault", "correlation_id": str(place), "priority": place % 5}

    def unbind(self) -> None:
        with self.connected() as connection:
            connection.channel().queue_unbind(self.name, self.name, "due")

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
        with self.connected() as connection:
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

    def _note(self, method: Any, properties: Any, body: bytes, subject: Subject) -> None:
        """Write a message down before it is acked; one given once more is no copy."""
        headers = {**(properties.headers or {})}
        headers.pop("x-delivery-count", None)  # a quorum queue's own, of what was given once more
        copy = (properties.message_id, headers.get("x-attempt"))
        if method.redelivered and copy in self._copies:
            return
        self._copies.add(copy)
        given = {name: getattr(properties, name) for name in Properties.__struct_fields__}
        print_of = fingerprint(body, None, tuple(headers.items()), given)
        event = HistoryEvent(
            now_ms(), subject, Phase.OK, properties.message_id, fingerprint=print_of
        )
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
        with self.connected() as connection:
            declared = connection.channel().queue_declare(queue, passive=True)
            return int(declared.method.message_count)

    def close(self) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()
        with suppress(pika.exceptions.AMQPError), self.connected() as connection:
            for queue in self._queues:
                connection.channel().queue_delete(queue)
                connection.channel().exchange_delete(queue)


BrokerSide: TypeAlias = KafkaSide | RabbitSide
