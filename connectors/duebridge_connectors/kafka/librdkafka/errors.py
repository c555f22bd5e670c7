"""The one place where an error of librdkafka gets its verdict.

A broker's own error has its number in Kafka's protocol: its verdict is that of
`duebridge_connectors.kafka.errors`, so that both clients judge alike. The client's own errors are
below zero and
judged here. One without a row is INDETERMINATE; tests/unit/test_librdkafka_errors.py demands a
row for each that confluent-kafka defines.
"""

from confluent_kafka import KafkaError
from kafka import errors as broker

from duebridge.ports.publisher import Outcome, Reason, Verdict
from duebridge_connectors.kafka.errors import TABLE, UNKNOWN, Row

_EXHAUSTED = Reason.ATTEMPTS_EXHAUSTED

_ROWS: dict[Row, tuple[int, ...]] = {
    (Verdict.REJECTED, Reason.INVALID): (KafkaError._INVALID_ARG,),  # `produce` cannot carry it
    (Verdict.TARGET_FAILED, Reason.TARGET_MISSING): (
        KafkaError._UNKNOWN_PARTITION,
        KafkaError._UNKNOWN_TOPIC,
    ),
    # A good record in a batch with a bad one: the broker appended nothing of it.
    (Verdict.FAILED, _EXHAUSTED): (KafkaError._INVALID_DIFFERENT_RECORD,),
    (Verdict.UNAVAILABLE, _EXHAUSTED): (KafkaError._QUEUE_FULL,),  # `produce` did not take it
    # It may be stored: the answer was lost, or the client does not tell whether it was sent.
    UNKNOWN: (
        KafkaError._ALL_BROKERS_DOWN,
        KafkaError._AUTHENTICATION,  # also of a connection that had carried it
        KafkaError._BAD_MSG,
        KafkaError._CRIT_SYS_RESOURCE,
        KafkaError._DESTROY,
        KafkaError._DESTROY_BROKER,
        KafkaError._FAIL,
        KafkaError._FATAL,
        KafkaError._INTR,
        KafkaError._ISR_INSUFF,
        KafkaError._MSG_TIMED_OUT,
        KafkaError._NODE_UPDATE,
        KafkaError._OUTDATED,
        KafkaError._PARTIAL,
        KafkaError._PURGE_INFLIGHT,
        KafkaError._PURGE_QUEUE,  # it waits there for a second attempt, too
        KafkaError._RESOLVE,
        KafkaError._RETRY,
        KafkaError._SSL,
        KafkaError._STATE,
        KafkaError._TIMED_OUT,
        KafkaError._TIMED_OUT_QUEUE,
        KafkaError._TRANSPORT,
        KafkaError._UNDERFLOW,
        KafkaError._UNKNOWN_BROKER,
        KafkaError._UNKNOWN_PROTOCOL,
        KafkaError._UNSUPPORTED_FEATURE,
        KafkaError._WAIT_CACHE,
    ),
}

# What consumers, transactions, serializers and admin clients meet. Should one ever come, it says
# nothing of the record.
_NEVER_EXPECTED = (
    KafkaError._APPLICATION,
    KafkaError._ASSIGN_PARTITIONS,
    KafkaError._ASSIGNMENT_LOST,
    KafkaError._AUTO_OFFSET_RESET,
    KafkaError._BAD_COMPRESSION,
    KafkaError._CONFLICT,
    KafkaError._EXISTING_SUBSCRIPTION,
    KafkaError._FENCED,
    KafkaError._FS,
    KafkaError._GAPLESS_GUARANTEE,
    KafkaError._IN_PROGRESS,
    KafkaError._INCONSISTENT,
    KafkaError._INVALID_TYPE,
    KafkaError._KEY_DESERIALIZATION,
    KafkaError._KEY_SERIALIZATION,
    KafkaError._LOG_TRUNCATION,
    KafkaError._MAX_POLL_EXCEEDED,
    KafkaError._NO_OFFSET,
    KafkaError._NOENT,
    KafkaError._NOOP,
    KafkaError._NOT_CONFIGURED,
    KafkaError._NOT_IMPLEMENTED,
    KafkaError._PARTITION_EOF,
    KafkaError._PREV_IN_PROGRESS,
    KafkaError._READ_ONLY,
    KafkaError._REVOKE_PARTITIONS,
    KafkaError._UNKNOWN_GROUP,
    KafkaError._VALUE_DESERIALIZATION,
    KafkaError._VALUE_SERIALIZATION,
    KafkaError._WAIT_COORD,
)

# A broker's that kafka-python has no class for: of patterns, bootstraps, streams and share groups.
_NEWER = range(128, 134)

OWN: dict[int, Row] = {
    **dict.fromkeys((*_NEVER_EXPECTED, *_NEWER), UNKNOWN),
    **{code: row for row, codes in _ROWS.items() for code in codes},
}

# Short of replicas, without a leader or throttled: it may be well again in a moment.
TEMPORARY = frozenset(
    {
        KafkaError.LEADER_NOT_AVAILABLE,
        KafkaError.NOT_ENOUGH_REPLICAS,
        KafkaError.THROTTLING_QUOTA_EXCEEDED,
    }
)


def row_of(code: int) -> Row:
    """Return the verdict and reason of an error code; without a row, that of the unknown."""
    return OWN.get(code) or TABLE.get(broker.for_code(code), UNKNOWN)


def outcome_of(error: KafkaError) -> Outcome:
    """Return an error as the worker reads it."""
    verdict, reason = row_of(error.code())
    return Outcome(verdict, reason, error.name(), error.str())


def refusal_of(error: Exception) -> Outcome:
    """Return what `Producer.produce` raised as the worker reads it: this never got further."""
    if isinstance(error, BufferError):
        return Outcome(Verdict.UNAVAILABLE, error_class="_QUEUE_FULL", error_message=str(error))
    found = error.args[0] if error.args else None
    if isinstance(found, KafkaError):
        return outcome_of(found)
    return Outcome(Verdict.REJECTED, Reason.INVALID, type(error).__name__, str(error))
