"""Turns librdkafka's errors into errors of the port, by the publisher's tables."""

from confluent_kafka import KafkaError, Message
from kafka import errors as broker

from duebridge.errors import BridgeError, ConfigError
from duebridge_connectors.kafka.librdkafka.errors import row_of
from duebridge_connectors.kafka.source.consumer import CommitRefused, RecordFailed
from duebridge_connectors.kafka.source.errors import REFUSALS, failure_of

# What a member is told and gets over by itself; the topic's watch notices a broker that is away.
_PASSING = frozenset(
    {
        KafkaError._ALL_BROKERS_DOWN,
        KafkaError._MAX_POLL_EXCEEDED,
        KafkaError._PARTITION_EOF,
        KafkaError._RESOLVE,
        KafkaError._TIMED_OUT,
        KafkaError._TRANSPORT,
    }
)
_REFUSALS = frozenset(
    {
        KafkaError._ASSIGNMENT_LOST,
        KafkaError._FENCED,
        KafkaError._NO_OFFSET,
        KafkaError._UNKNOWN_PARTITION,
        KafkaError._UNKNOWN_TOPIC,
    }
)


def failure_by(error: KafkaError, said: str = "") -> BridgeError:
    """Return a `ConfigError` where topic or right are missing, else a `BrokerUnavailable`."""
    return failure_of(row_of(error.code()), error.name(), said or error.str())


def commit_failure(error: KafkaError) -> BridgeError:
    """Return a `CommitRefused` where the group or the topic has moved on, else the failure."""
    code = error.code()
    if code in _REFUSALS or broker.for_code(code) in REFUSALS:
        return CommitRefused(f"{error.name()}: {error.str()}")
    return failure_by(error)


def failure_at(error: KafkaError, record: Message) -> BridgeError | None:
    """Return the failure that came in a record's place, None if librdkafka gets over it."""
    if error.code() in _PASSING:
        return None
    part, offset = record.partition(), record.offset()
    failure = failure_by(error, f"{error.str()} (partition {part}, offset {offset})")
    if part is None or offset is None or offset < 0 or isinstance(failure, ConfigError):
        return failure
    return RecordFailed(str(failure), part, offset)
