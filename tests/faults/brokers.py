"""The two brokers as a fault test sees them: a target of its own, and an independent consumer."""

import threading
import time
from typing import Any, Protocol

import pika
from kafka import KafkaConsumer, TopicPartition
from kafka.admin import KafkaAdminClient

from bridge.audit import Arrived, fingerprint


class BrokerSide(Protocol):
    """What a scenario needs of a broker; `service` is its name in deploy/local."""

    service: str
    settings: dict[str, Any]
    target: dict[str, str]
    dead_letter: dict[str, str]

    def read_target(self, at_least: int) -> list[Arrived]: ...

    def read_dead_letters(self) -> list[Arrived]: ...

    def close(self) -> None: ...


class KafkaSide:
    """Topics whose record time is the broker's own, read back from offset 0 to the end."""

    service = "kafka"

    def __init__(self, bootstrap: str, name: str) -> None:
        self._bootstrap = bootstrap
        self.settings = {"type": "kafka", "bootstrap_servers": [bootstrap]}
        self.target = {"broker": "side", "topic": name}
        self.dead_letter = {"broker": "side", "topic": f"{name}-dlt"}
        topic = {"num_partitions": 2, "replication_factor": 1}
        topic["configs"] = {"message.timestamp.type": "LogAppendTime"}  # type: ignore[assignment]
        admin = KafkaAdminClient(bootstrap_servers=bootstrap)
        admin.create_topics({name: topic, f"{name}-dlt": topic})
        admin.close()

    def read_target(self, at_least: int) -> list[Arrived]:
        return self._read(self.target["topic"])

    def read_dead_letters(self) -> list[Arrived]:
        return self._read(self.dead_letter["topic"])

    def _read(self, topic: str) -> list[Arrived]:
        consumer = KafkaConsumer(
            bootstrap_servers=self._bootstrap,
            enable_auto_commit=False,
            auto_offset_reset="earliest",
        )
        partitions = [TopicPartition(topic, each) for each in consumer.partitions_for_topic(topic)]
        consumer.assign(partitions)
        ends = consumer.end_offsets(partitions)
        arrived: list[Arrived] = []
        while any(consumer.position(each) < ends[each] for each in partitions):
            for records in consumer.poll(timeout_ms=1000).values():
                arrived += [_arrived(record) for record in records]
        consumer.close()
        return arrived

    def close(self) -> None:
        pass


def _arrived(record: Any) -> Arrived:
    headers = tuple(record.headers)
    ids = [value.decode() for name, value in headers if name == "x-message-id"]
    return Arrived(ids[0], record.timestamp, fingerprint(record.value, record.key, headers))


class RabbitSide:
    """A durable queue behind an exchange, with a consumer attached before anything is due."""

    service = "rabbitmq"

    def __init__(self, url: str, name: str) -> None:
        self._url = url
        self.settings = {"type": "rabbitmq", "url": url}
        self.target = {"broker": "side", "exchange": name, "routing_key": "due"}
        self.dead_letter = {"broker": "side", "exchange": "", "routing_key": f"{name}-dead"}
        connection = pika.BlockingConnection(pika.URLParameters(url))
        channel = connection.channel()
        channel.exchange_declare(name, "direct", durable=True)
        for queue in (name, f"{name}-dead"):
            channel.queue_declare(queue, durable=True, arguments={"x-queue-type": "quorum"})
        channel.queue_bind(name, name, "due")
        connection.close()
        self._queues = (name, f"{name}-dead")
        self._seen: dict[str, list[Arrived]] = {queue: [] for queue in self._queues}
        self._stop = threading.Event()
        self._threads = [
            threading.Thread(target=self._consume, args=(each,)) for each in self._queues
        ]
        for thread in self._threads:
            thread.start()

    def _consume(self, queue: str) -> None:
        """Log every message before it is acked; a broker that goes away is waited for."""
        while not self._stop.is_set():
            try:
                self._consume_once(queue)
            except pika.exceptions.AMQPError:
                self._stop.wait(0.2)

    def _consume_once(self, queue: str) -> None:
        connection = pika.BlockingConnection(pika.URLParameters(self._url))
        channel = connection.channel()
        channel.basic_qos(prefetch_count=500)
        for method, properties, body in channel.consume(queue, inactivity_timeout=0.2):
            if method is not None:
                self._seen[queue].append(_consumed(properties, body))
                channel.basic_ack(method.delivery_tag)
            if self._stop.is_set():
                break
        connection.close()

    def read_target(self, at_least: int) -> list[Arrived]:
        return self._settled(self._queues[0], at_least)

    def read_dead_letters(self) -> list[Arrived]:
        return self._settled(self._queues[1], 0)

    def _settled(self, queue: str, at_least: int) -> list[Arrived]:
        """Return what came, once the queue is empty and unacked by nobody."""
        give_up_at = time.monotonic() + 30
        while self._left(queue) or len({each.id for each in self._seen[queue]}) < at_least:
            if time.monotonic() > give_up_at:
                break
            self._stop.wait(0.05)
        return list(self._seen[queue])

    def _left(self, queue: str) -> int:
        connection = pika.BlockingConnection(pika.URLParameters(self._url))
        declared = connection.channel().queue_declare(queue, passive=True)
        connection.close()
        return int(declared.method.message_count)

    def close(self) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()


def _consumed(properties: Any, body: bytes) -> Arrived:
    headers = tuple((properties.headers or {}).items())
    now_ms = int(time.time() * 1000)
    return Arrived(properties.message_id, now_ms, fingerprint(body, None, headers))
