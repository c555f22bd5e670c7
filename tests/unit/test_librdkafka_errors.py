"""Every error that confluent-kafka defines has a verdict, and a broker's the same as elsewhere."""

import pytest
from confluent_kafka import KafkaError, KafkaException

import duebridge_connectors.kafka  # noqa: F401 - before kafka, whose import warns
from duebridge.ports.publisher import Reason, Verdict
from duebridge_connectors.kafka.errors import TABLE
from duebridge_connectors.kafka.librdkafka.errors import OWN, outcome_of, refusal_of, row_of

from kafka import errors as broker  # isort: skip

CODES = {
    name: code
    for name, code in vars(KafkaError).items()
    if isinstance(code, int) and not name.startswith("__")
}


@pytest.mark.parametrize("name", sorted(CODES))
def test_look_up_each_code_finds_a_row(name: str) -> None:
    code = CODES[name]
    assert code in OWN or broker.for_code(code) in TABLE


def test_walk_covers_the_clients_own_errors_and_the_brokers() -> None:
    assert CODES["_TRANSPORT"] == -195
    assert CODES["INVALID_RECORD"] == 87
    assert len(CODES) > 150


@pytest.mark.parametrize("error", [e for e in TABLE if getattr(e, "errno", None) is not None])
def test_look_up_a_brokers_error_gives_the_verdict_of_the_other_client(
    error: type[BaseException],
) -> None:
    code = error.errno  # type: ignore[attr-defined]
    assert row_of(code) == TABLE[broker.for_code(code)]


def test_rows_with_a_reason_of_their_own_are_those_that_can_be_buried_for_it() -> None:
    for code, (verdict, reason) in OWN.items():
        is_own = reason is not Reason.ATTEMPTS_EXHAUSTED
        assert is_own == (verdict in {Verdict.REJECTED, Verdict.TARGET_FAILED}), code


@pytest.mark.parametrize(
    ("code", "verdict", "reason"),
    [
        (KafkaError.MSG_SIZE_TOO_LARGE, Verdict.REJECTED, Reason.TOO_LARGE),
        (KafkaError.INVALID_RECORD, Verdict.REJECTED, Reason.INVALID),
        (KafkaError._UNKNOWN_TOPIC, Verdict.TARGET_FAILED, Reason.TARGET_MISSING),
        (KafkaError._UNKNOWN_PARTITION, Verdict.TARGET_FAILED, Reason.TARGET_MISSING),
        (KafkaError.UNKNOWN_TOPIC_OR_PART, Verdict.TARGET_FAILED, Reason.TARGET_MISSING),
        (KafkaError.TOPIC_EXCEPTION, Verdict.TARGET_FAILED, Reason.TARGET_MISSING),
        (KafkaError.TOPIC_AUTHORIZATION_FAILED, Verdict.TARGET_FAILED, Reason.UNAUTHORIZED),
        (KafkaError.NOT_ENOUGH_REPLICAS, Verdict.FAILED, Reason.ATTEMPTS_EXHAUSTED),
        (KafkaError._INVALID_DIFFERENT_RECORD, Verdict.FAILED, Reason.ATTEMPTS_EXHAUSTED),
        (KafkaError._MSG_TIMED_OUT, Verdict.INDETERMINATE, Reason.ATTEMPTS_EXHAUSTED),
        (KafkaError._TRANSPORT, Verdict.INDETERMINATE, Reason.ATTEMPTS_EXHAUSTED),
        (KafkaError._PURGE_QUEUE, Verdict.INDETERMINATE, Reason.ATTEMPTS_EXHAUSTED),
        (KafkaError.NOT_LEADER_FOR_PARTITION, Verdict.INDETERMINATE, Reason.ATTEMPTS_EXHAUSTED),
        (-20_000, Verdict.INDETERMINATE, Reason.ATTEMPTS_EXHAUSTED),
        (32_000, Verdict.INDETERMINATE, Reason.ATTEMPTS_EXHAUSTED),
    ],
)
def test_outcome_of_a_known_error_is_what_it_means(
    code: int, verdict: Verdict, reason: Reason
) -> None:
    outcome = outcome_of(KafkaError(code, "in other words"))
    assert (outcome.verdict, outcome.reason) == (verdict, reason)
    assert outcome.error_message == "in other words"


def test_outcome_names_the_error_as_librdkafka_does() -> None:
    error = KafkaError(KafkaError._TRANSPORT, "x")
    assert outcome_of(error).error == "_TRANSPORT\nx"


@pytest.mark.parametrize(
    ("error", "verdict"),
    [
        (KafkaException(KafkaError(KafkaError.MSG_SIZE_TOO_LARGE)), Verdict.REJECTED),
        (KafkaException(KafkaError(KafkaError._UNKNOWN_TOPIC)), Verdict.TARGET_FAILED),
        (BufferError("full"), Verdict.UNAVAILABLE),
        (ValueError("x"), Verdict.REJECTED),
        (TypeError("x"), Verdict.REJECTED),
    ],
)
def test_refusal_of_what_the_client_would_not_take_is_what_it_means(
    error: Exception, verdict: Verdict
) -> None:
    assert refusal_of(error).verdict is verdict
