"""Maps librdkafka's error codes to verdicts, and says whether they leave the record unsure.

Broker errors have Kafka's protocol numbers and the verdicts of `duebridge_connectors.kafka.errors`;
local errors are negative and listed here. An error without a row is INDETERMINATE; a test requires
a row for every code of confluent-kafka.
"""

from confluent_kafka import KafkaError
from kafka import errors as broker

from duebridge.ports.publisher import Outcome, Reason, Verdict
from duebridge_connectors.kafka.attempt import AttemptError
from duebridge_connectors.kafka.errors import (
    TABLE,
    UNKNOWN,
    KafkaErrorRule,
    is_temporary,
    with_hint,
)

_ROWS: dict[KafkaErrorRule, tuple[int, ...]] = {
    KafkaErrorRule(Verdict.REJECTED, Reason.INVALID): (
        KafkaError._INVALID_ARG,
    ),  # `produce` cannot encode it
    KafkaErrorRule(Verdict.TARGET_FAILED, Reason.TARGET_MISSING): (
        KafkaError._UNKNOWN_PARTITION,
        KafkaError._UNKNOWN_TOPIC,
    ),
    # A valid record in a batch with an invalid one; the broker appended neither.
    KafkaErrorRule(Verdict.FAILED): (KafkaError._INVALID_DIFFERENT_RECORD,),
    KafkaErrorRule(Verdict.UNAVAILABLE): (KafkaError._QUEUE_FULL,),  # `produce` rejected it
    # The answer was lost, or the client does not say if it sent the record.
    UNKNOWN: (
        KafkaError._ALL_BROKERS_DOWN,
        KafkaError._AUTHENTICATION,  # may follow a successful send
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
        KafkaError._PURGE_QUEUE,  # may wait there for a retry
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

# Errors of consumers, transactions, serializers and admin clients. They would prove nothing about
# a record.
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

# Broker errors unknown to kafka-python: patterns, bootstraps, streams and share groups.
_NEWER = range(128, 134)

OWN: dict[int, KafkaErrorRule] = {
    **dict.fromkeys((*_NEVER_EXPECTED, *_NEWER), UNKNOWN),
    **{code: row for row, codes in _ROWS.items() for code in codes},
}


def row_of(code: int) -> KafkaErrorRule:
    """Return the row of an error code; UNKNOWN for a code without one."""
    return OWN.get(code) or TABLE.get(broker.for_code(code), UNKNOWN)


def answered_refusal(error: KafkaError) -> AttemptError:
    """Return the refusal for a delivery report's error."""
    verdict, reason, is_unsure = row_of(error.code())
    kind = broker.for_code(error.code())
    words = with_hint(kind, error.str())
    outcome = Outcome(verdict, reason, error.name(), words, is_unsure)
    return AttemptError(outcome, is_temporary(kind))


def produce_refusal(error: Exception) -> Outcome:
    """Return the outcome of an exception from `Producer.produce`; nothing was sent."""
    if isinstance(error, BufferError):
        return Outcome(Verdict.UNAVAILABLE, error_class="_QUEUE_FULL", error_message=str(error))
    found = error.args[0] if error.args else None
    if isinstance(found, KafkaError):
        return answered_refusal(found).outcome
    return Outcome(Verdict.REJECTED, Reason.INVALID, type(error).__name__, str(error))
