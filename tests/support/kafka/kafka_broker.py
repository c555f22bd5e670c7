"""The real Kafka under test, and a way round the publisher: an admin client and a consumer."""

import secrets
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from typing import Any

from kafka import KafkaAdminClient, KafkaConsumer, TopicPartition

from duebridge.envelope import Target
from duebridge.ports.publisher import Delivery
from duebridge_connectors.kafka import open_publisher
from duebridge_connectors.kafka.publisher import KafkaPublisher
from tests.support.contract.broker_under_test import BRIDGE_ID, Features, Received, delivery


class KafkaBroker:
    """Topics of one partition each, with names of their own; `close` deletes them."""

    features = Features(
        broker="kafka",
        largest_body=1_000_000,
        keys=True,
        null_body=True,
        typed_headers=False,
        null_header_values=True,
        ordered_headers=True,
        repeated_header_names=True,
        properties=False,
        missing_target=True,
        size_limit=True,
        invalid=True,
    )

    client = "kafka-python"

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap
        self._created: set[str] = set()
        self._admin = KafkaAdminClient(bootstrap_servers=bootstrap)

    def close(self) -> None:
        if self._created:
            self._admin.delete_topics(sorted(self._created))
        self._admin.close()

    def open(
        self, deadline_s: float, options: Mapping[str, object] | None = None
    ) -> KafkaPublisher[Any]:
        return self._open(self.bootstrap, deadline_s, options or {})

    def open_at(self, port: int, deadline_s: float) -> KafkaPublisher[Any]:
        return self._open(f"127.0.0.1:{port}", deadline_s, {})

    def _open(
        self, server: str, deadline_s: float, options: Mapping[str, object]
    ) -> KafkaPublisher[Any]:
        settings = {"client": self.client, "bootstrap_servers": [server], "options": options}
        return open_publisher(settings, deadline_s)

    def missing_target(self) -> Target:
        return Target("kafka", topic=f"contract-{secrets.token_hex(6)}")

    def create(
        self, target: Target, partitions: int = 1, configs: Mapping[str, str] | None = None
    ) -> None:
        assert target.topic is not None
        wanted = {"num_partitions": partitions, "replication_factor": 1, "configs": configs or {}}
        self._admin.create_topics({target.topic: wanted})
        self._created.add(target.topic)
        while target.topic not in self._admin.list_topics():
            pass  # the controller has made it, the broker does not know yet

    def delete(self, target: Target) -> None:
        assert target.topic is not None
        self._admin.delete_topics([target.topic])
        self._created.remove(target.topic)
        while target.topic in self._admin.list_topics():
            pass  # the controller has deleted it, the broker does not know yet

    def read_all(self, target: Target) -> Sequence[Received]:
        """Return what the topic's first partition holds."""
        return [_received(record) for record in self.records(target)]

    def timestamps(self, target: Target) -> list[int]:
        """Return the record times, epoch ms, of the topic's first partition."""
        return [record.timestamp for record in self.records(target)]

    def partitions_of_keys(self, target: Target) -> dict[bytes, int]:
        """Return the partition that each key of the topic is in."""
        return {record.key: record.partition for record in self.records(target, None)}

    def records(self, target: Target, partition: int | None = 0) -> list[Any]:
        """Return the records of a partition, or of all for None."""
        with closing(KafkaConsumer(bootstrap_servers=self.bootstrap)) as consumer:
            numbers = (
                consumer.partitions_for_topic(target.topic) if partition is None else {partition}
            )
            wanted = [TopicPartition(target.topic, number) for number in numbers]
            consumer.assign(wanted)
            consumer.seek_to_beginning(*wanted)
            ends = consumer.end_offsets(wanted)
            records: list[Any] = []
            while any(consumer.position(each) < ends[each] for each in wanted):
                for polled in consumer.poll(timeout_ms=1000).values():
                    records += polled
        return records

    def too_large(self, target: Target) -> Delivery:
        return delivery(target, b"x" * 2_000_000)

    def invalid(self) -> tuple[Delivery, Delivery]:
        """Return one without a key for a compacted topic, which wants a key of each record."""
        target = self.missing_target()
        self.create(target, configs={"cleanup.policy": "compact"})
        return delivery(target), delivery(target, key=b"k")


class LibrdkafkaBroker(KafkaBroker):
    """A `KafkaBroker` whose publishers are of `client: librdkafka`."""

    features = replace(KafkaBroker.features, broker="librdkafka")
    client = "librdkafka"


def _received(record: Any) -> Received:
    headers = list(record.headers)
    (id_,) = [value.decode() for name, value in headers if name == BRIDGE_ID]
    others = tuple((name, value) for name, value in headers if name != BRIDGE_ID)
    return Received(record.value, id_, record.key, others)
