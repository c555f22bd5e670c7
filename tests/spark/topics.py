"""Topics of the real Kafka for one test: made, filled, deleted and made anew."""

from collections.abc import Iterable
from contextlib import closing
from typing import NamedTuple

from kafka import KafkaProducer

from duebridge.envelope import Target
from tests.support.kafka_broker import KafkaBroker

RECORDED_AT_MS = 1_700_000_000_000
FOR_GOOD = {"retention.ms": "-1"}  # what is recorded that long ago would be cut at any moment


class Record(NamedTuple):
    """What a producer sends."""

    value: bytes | None
    key: bytes | None = None
    headers: tuple[tuple[str, bytes], ...] = ()
    partition: int | None = None


class Topics:
    """The broker, and the topics of the test."""

    def __init__(self, broker: KafkaBroker) -> None:
        self._broker = broker
        self.bootstrap = broker.bootstrap

    def make(self, partitions: int = 2) -> str:
        target = self._broker.missing_target()
        self._broker.create(target, partitions, FOR_GOOD)
        return str(target.topic)

    def make_anew(self, name: str, partitions: int = 2) -> None:
        """Delete a topic, and make one of the same name."""
        target = Target("kafka", topic=name)
        self._broker.delete(target)
        self._broker.create(target, partitions, FOR_GOOD)

    def fill(self, name: str, records: Iterable[Record]) -> None:
        """Send all of them, as of RECORDED_AT_MS."""
        with closing(KafkaProducer(bootstrap_servers=self.bootstrap, linger_ms=5)) as producer:
            for value, key, headers, partition in records:
                producer.send(name, value, key, list(headers), partition, RECORDED_AT_MS)
            producer.flush()
