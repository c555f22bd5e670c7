"""Kafka consumers that only commit: what `duebridge bench` compares an intake with."""

import time
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, Final

from kafka import KafkaConsumer, KafkaProducer

from duebridge.ports.baseline import DEADLINE_S, DELAY_MS, FILL_HEADERS
from duebridge.ports.publisher import BrokerUnavailable
from duebridge_connectors.kafka.baseline import BULK, Topics, librdkafka_options
from duebridge_connectors.kafka.settings import producer_config

RECORDS: Final = 500  # of one poll, which is committed
POLL_S: Final = 1.0
GROUP: Final = "bare"
_HEADERS: Final = [
    ("x-delay", b"%d" % DELAY_MS),
    *((name, value.encode()) for name, value in FILL_HEADERS),
]


class _BareConsumer(ABC):
    """A `BareConsumer` whose scratch topic kafka-python fills."""

    _consumer: Any = None

    def __init__(self, settings: Mapping[str, object], name: str) -> None:
        self.source = {"topic": name, "group": f"{name}-intake"}
        self._name = name
        self._settings = settings
        self._config = producer_config({**settings, "client": "kafka-python"}, DEADLINE_S)
        self._topics = Topics(self._config)
        self._topics.create(name)

    def fill(self, bodies: Sequence[bytes]) -> None:
        """Send all bodies and wait for every confirm; see `BareConsumer`."""
        producer: Any = KafkaProducer(**{**self._config, **BULK})
        keys = (b"%d" % number for number in range(len(bodies)))
        pairs = zip(bodies, keys, strict=True)
        sent = [producer.send(self._name, body, key, _HEADERS) for body, key in pairs]
        producer.flush()
        for each in sent:
            each.get(DEADLINE_S)
        producer.close()

    def take(self, count: int) -> None:
        """Consume and commit; see `BareConsumer`."""
        if self._consumer is None:
            self._consumer = self._subscribed()
        taken, late = 0, time.monotonic() + DEADLINE_S
        while taken < count and time.monotonic() < late:
            taken += self._taken()
        if taken < count:
            raise BrokerUnavailable(f"kafka: {taken} of {count} came within {DEADLINE_S:g} s")

    def close(self) -> None:
        """Leave the group, and delete the topic; see `BareConsumer`."""
        if self._consumer is not None:
            self._consumer.close()
        self._topics.delete(self._name)

    @abstractmethod
    def _subscribed(self) -> Any:
        """Return the client's consumer of the topic."""

    @abstractmethod
    def _taken(self) -> int:
        """Take and commit what is there; return how many."""


class KafkaBareConsumer(_BareConsumer):
    """A bare consumer of kafka-python."""

    def _subscribed(self) -> Any:
        known = KafkaConsumer.DEFAULT_CONFIG
        config = {key: value for key, value in self._config.items() if key in known}
        config |= {"group_id": f"{self._name}-{GROUP}", "auto_offset_reset": "earliest"}
        config |= {"enable_auto_commit": False, "max_poll_records": RECORDS}
        return KafkaConsumer(self._name, **config)

    def _taken(self) -> int:
        if found := self._consumer.poll(timeout_ms=int(POLL_S * 1000)):
            self._consumer.commit()
        return sum(map(len, found.values()))


class LibrdkafkaBareConsumer(_BareConsumer):
    """A bare consumer of librdkafka."""

    def _subscribed(self) -> Any:
        from confluent_kafka import Consumer

        consumer = Consumer(
            {
                **librdkafka_options(self._settings, self._config),
                "group.id": f"{self._name}-{GROUP}",
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
            }
        )
        consumer.subscribe([self._name])
        return consumer

    def _taken(self) -> int:
        if found := self._consumer.consume(RECORDS, POLL_S):
            self._consumer.commit(asynchronous=False)
        return len(found)


def open_bare_consumer(settings: Mapping[str, object], name: str) -> _BareConsumer:
    """Return the bare consumer of the configured `client`; see `BareConsumer`."""
    if settings.get("client") == "librdkafka":
        return LibrdkafkaBareConsumer(settings, name)
    return KafkaBareConsumer(settings, name)
