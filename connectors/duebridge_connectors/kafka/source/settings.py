"""The settings of an intake's Kafka source, and the configuration of its consumer.

Imports no client, but where it makes that configuration.
"""

from collections.abc import Mapping
from typing import Annotated

from pydantic import AfterValidator, Field

from duebridge.envelope import Target
from duebridge.ports.settings import Text, expected
from duebridge.ports.source import SourcePlan, SourceSettings
from duebridge_connectors.kafka.checks.permissions import DEFAULT_GROUP, group_of
from duebridge_connectors.kafka.checks.topics import EXPECTED, is_topic


def _topic(name: str) -> str:
    if not is_topic(name):
        raise expected(EXPECTED)
    return name


class KafkaSourceSettings(SourceSettings):
    """A Kafka topic, read by a consumer group."""

    topic: Annotated[Text, Field(max_length=249), AfterValidator(_topic)]
    """The topic's name."""
    group: Annotated[Text, Field(max_length=255)] = DEFAULT_GROUP
    """The consumer group whose members share the topic's partitions."""

    def shared(self) -> Mapping[str, str]:
        """Return what is read; see `SourceSettings.shared`."""
        return {"broker": self.broker, "topic": self.topic, "group": self.group}

    def target(self) -> Target:
        """Return the topic; see `SourceSettings.target`."""
        return Target(self.broker, topic=self.topic)


REQUEST_MS = 10_000
SESSION_MS = 15_000  # without a heartbeat a member's partitions go to the others
HEARTBEAT_MS = 3_000
MAX_POLL_MS = 300_000
MIN_FETCH_BYTES = 64 * 1024

# A producer's limit of one would let no question through beside the fetch that waits for records.
_NOT_OURS = frozenset({"max_in_flight_requests_per_connection"})


def fetch_bytes(plan: SourcePlan) -> int:
    """Return the most that one fetch may bring: one is read while the next one is being fetched."""
    return max(plan.in_hand_bytes // 4, MIN_FETCH_BYTES)


def part_fetch_bytes(plan: SourcePlan) -> int:
    """Return the most that one fetch may bring of one partition."""
    return min(fetch_bytes(plan), 1024 * 1024)


def kafka_python_config(settings: Mapping[str, object], plan: SourcePlan) -> dict[str, object]:
    """Return the keyword arguments of `KafkaConsumer`. Raises `ConfigError`."""
    from kafka import KafkaConsumer
    from kafka.coordinator.assignors.cooperative_sticky import CooperativeStickyAssignor

    from duebridge_connectors.kafka.settings import ANY_DEADLINE_S, producer_config

    given = producer_config({**settings, "client": "kafka-python"}, ANY_DEADLINE_S)
    known = KafkaConsumer.DEFAULT_CONFIG
    return {
        **{name: given[name] for name in given if name in known and name not in _NOT_OURS},
        "auto_offset_reset": "earliest",
        "enable_auto_commit": False,
        "fetch_max_bytes": fetch_bytes(plan),
        "group_id": group_of(plan),
        "heartbeat_interval_ms": HEARTBEAT_MS,
        "isolation_level": "read_committed",
        "max_partition_fetch_bytes": part_fetch_bytes(plan),
        "max_poll_interval_ms": MAX_POLL_MS,
        "max_poll_records": plan.batch,
        "partition_assignment_strategy": (CooperativeStickyAssignor,),
        "request_timeout_ms": REQUEST_MS,
        "session_timeout_ms": SESSION_MS,
    }


# Of a producer alone: librdkafka would log a warning for each.
_PRODUCERS = frozenset(
    {
        "acks",
        "batch.num.messages",
        "batch.size",
        "compression.level",
        "compression.type",
        "enable.idempotence",
        "linger.ms",
        "message.send.max.retries",
        "message.timeout.ms",
        "partitioner",
        "queue.buffering.backpressure.threshold",
        "queue.buffering.max.kbytes",
        "queue.buffering.max.messages",
        "request.timeout.ms",
        "retry.backoff.ms",
        "retry.backoff.max.ms",
        "sticky.partitioning.linger.ms",
    }
)


def librdkafka_config(settings: Mapping[str, object]) -> dict[str, object]:
    """Return the settings of every librdkafka client. Raises `ConfigError`."""
    from duebridge_connectors.kafka.librdkafka.settings import producer_config
    from duebridge_connectors.kafka.settings import ANY_DEADLINE_S

    given = producer_config(settings, ANY_DEADLINE_S)
    common = {name: given[name] for name in given if name not in _PRODUCERS}
    return {**common, "socket.timeout.ms": REQUEST_MS}


def group_config(plan: SourcePlan) -> dict[str, object]:
    """Return the settings that only a librdkafka consumer has."""
    return {
        "auto.offset.reset": "earliest",
        "check.crcs": True,
        "enable.auto.commit": False,
        "enable.auto.offset.store": False,
        "fetch.max.bytes": fetch_bytes(plan),
        "fetch.queue.backoff.ms": 5,  # by default it rests for a second after a full queue
        "group.id": group_of(plan),
        "heartbeat.interval.ms": HEARTBEAT_MS,
        "isolation.level": "read_committed",
        "max.partition.fetch.bytes": part_fetch_bytes(plan),
        "max.poll.interval.ms": MAX_POLL_MS,
        "message.max.bytes": MIN_FETCH_BYTES,  # bounds what it sends, and must not exceed a fetch
        "partition.assignment.strategy": "cooperative-sticky",
        "queued.max.messages.kbytes": max(plan.in_hand_bytes // 2048, 64),
        "queued.min.messages": max(plan.in_hand, plan.batch),
        "session.timeout.ms": SESSION_MS,
    }
