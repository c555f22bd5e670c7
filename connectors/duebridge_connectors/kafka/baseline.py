"""Kafka clients without the bridge: the baseline of `duebridge bench`."""

import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from kafka import KafkaProducer
from kafka.admin import KafkaAdminClient
from kafka.errors import KafkaError

from duebridge.ports.baseline import DEADLINE_S, HEADERS
from duebridge.ports.publisher import BrokerUnavailable
from duebridge_connectors.kafka.settings import producer_config

PARTITIONS = 4
_HEADERS = [(name, value.encode()) for name, value in HEADERS]
# The best batching for throughput, and the best for latency. The bridge retries by itself; a bare
# client must, since a partition of a new topic may answer that nobody leads it yet.
BULK = {"linger_ms": 5, "batch_size": 262_144, "retries": 100}
_SINGLE = {"linger_ms": 0, "batch_size": 16_384, "retries": 100}


class KafkaBaseline:
    """A `BaselineClient` of two kafka-python producers.

    They have the connector's settings except for batching and retries.
    """

    def __init__(self, settings: Mapping[str, object], name: str) -> None:
        self.target = {"topic": name}
        self._name = name
        config = producer_config({**settings, "client": "kafka-python"}, DEADLINE_S)
        self._topics = Topics(config)
        self._topics.create(name)
        self._bulk: Any = KafkaProducer(**{**config, **BULK})
        self._single: Any = KafkaProducer(**{**config, **_SINGLE})

    def publish_all(self, bodies: Sequence[bytes]) -> None:
        """Send all bodies and wait for every confirm; see `BaselineClient`."""
        send = self._bulk.send
        futures = [send(self._name, body, headers=_HEADERS) for body in bodies]
        self._bulk.flush()
        for future in futures:
            future.get(DEADLINE_S)

    def publish(self, body: bytes, confirmed: Callable[[], None]) -> None:
        """Send one body without lingering; see `BaselineClient`."""
        future = self._single.send(self._name, body, headers=_HEADERS)
        future.add_callback(lambda _: confirmed())

    def empty(self) -> None:
        """Do nothing: the length of a log does not affect publishing."""

    def close(self) -> None:
        """Close the producers and delete the topic; see `BaselineClient`."""
        self._bulk.close()
        self._single.close()
        self._topics.delete(self._name)


class LibrdkafkaBaseline:
    """A `BaselineClient` of two librdkafka producers."""

    def __init__(self, settings: Mapping[str, object], name: str) -> None:
        from confluent_kafka import Producer

        self.target = {"topic": name}
        self._name = name
        config = producer_config({**settings, "client": "kafka-python"}, DEADLINE_S)
        self._topics = Topics(config)
        self._topics.create(name)
        common = {**librdkafka_options(settings, config), "acks": "all"}
        common["queue.buffering.max.messages"] = 1_000_000
        self._bulk: Any = Producer({**common, "linger.ms": 5})
        self._single: Any = Producer({**common, "linger.ms": 0})
        self._poller = threading.Thread(target=self._poll, name="baseline-librdkafka", daemon=True)
        self._is_closed = False
        self._poller.start()

    def publish_all(self, bodies: Sequence[bytes]) -> None:
        """Send all bodies and wait for every confirm; see `BaselineClient`."""
        confirms = 0

        def on_delivery(error: object, _: object) -> None:
            nonlocal confirms
            confirms += error is None

        for index, body in enumerate(bodies):
            self._bulk.produce(self._name, body, headers=_HEADERS, on_delivery=on_delivery)
            if not index % 1000:
                self._bulk.poll(0)
        self._bulk.flush(DEADLINE_S)
        if confirms != len(bodies):
            raise BrokerUnavailable(f"kafka: {confirms} of {len(bodies)} were confirmed")

    def publish(self, body: bytes, confirmed: Callable[[], None]) -> None:
        """Send one body without lingering; see `BaselineClient`."""
        self._single.produce(self._name, body, headers=_HEADERS, on_delivery=lambda *_: confirmed())

    def empty(self) -> None:
        """Do nothing: the length of a log does not affect publishing."""

    def close(self) -> None:
        """Stop the producers and delete the topic; see `BaselineClient`."""
        self._is_closed = True
        self._poller.join()
        self._topics.delete(self._name)

    def _poll(self) -> None:
        while not self._is_closed:
            self._single.poll(0.1)


def librdkafka_options(
    settings: Mapping[str, object], config: Mapping[str, object]
) -> dict[str, object]:
    """Return a broker's options and servers as librdkafka has them; `config` is kafka-python's."""
    options = settings.get("options") or {}
    assert isinstance(options, Mapping)  # noqa: S101 - `producer_config` checked it
    servers = ",".join(config["bootstrap_servers"])  # type: ignore[arg-type]
    return {**options, "bootstrap.servers": servers}


class Topics:
    """Creates and deletes scratch topics."""

    def __init__(self, config: Mapping[str, object]) -> None:
        known = KafkaAdminClient.DEFAULT_CONFIG
        self._config: dict[str, Any] = {key: config[key] for key in config if key in known}

    def create(self, name: str) -> None:
        """Create a topic; raises `BrokerUnavailable`."""
        topic = {name: {"num_partitions": PARTITIONS, "replication_factor": -1}}
        self._with_admin(lambda admin: admin.create_topics(topic))

    def delete(self, name: str) -> None:
        """Delete a topic; raises `BrokerUnavailable`."""
        self._with_admin(lambda admin: admin.delete_topics([name]))

    def _with_admin(self, call: Callable[[Any], object]) -> None:
        try:
            admin = KafkaAdminClient(**self._config)
            call(admin)
            admin.close()
        except KafkaError as error:
            raise BrokerUnavailable(f"kafka: {type(error).__name__} {error}") from error


def open_baseline(settings: Mapping[str, object], name: str) -> KafkaBaseline | LibrdkafkaBaseline:
    """Return the baseline client of the configured `client`; see `duebridge.ports.baseline`."""
    if settings.get("client") == "librdkafka":
        return LibrdkafkaBaseline(settings, name)
    return KafkaBaseline(settings, name)
