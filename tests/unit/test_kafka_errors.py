"""Every error that kafka-python defines has a verdict of its own, and the known ones the right."""

import inspect

import pytest

import duebridge_connectors.kafka  # noqa: F401 - before kafka, whose import warns
from duebridge.ports.publisher import CONFIRMED, Reason, Verdict
from duebridge_connectors.kafka.answers import is_temporary, may_be_a_neighbours_fault, outcome_of
from duebridge_connectors.kafka.errors import TABLE, NotSent, NotTriedAlone, Unanswered

from kafka import errors as vendor  # isort: skip

DEFINED = [
    value
    for _, value in inspect.getmembers(vendor, inspect.isclass)
    if issubclass(value, BaseException)
]


@pytest.mark.parametrize("error", DEFINED, ids=lambda error: error.__name__)
def test_look_up_each_vendor_error_finds_a_row(error: type[BaseException]) -> None:
    assert error in TABLE


def test_rows_with_a_reason_of_their_own_are_those_that_can_be_buried_for_it() -> None:
    for error, (verdict, reason) in TABLE.items():
        is_own = reason is not Reason.ATTEMPTS_EXHAUSTED
        assert is_own == (verdict in {Verdict.REJECTED, Verdict.TARGET_FAILED}), error


@pytest.mark.parametrize(
    ("error", "verdict", "reason"),
    [
        (vendor.MessageSizeTooLargeError("x"), Verdict.REJECTED, Reason.TOO_LARGE),
        (vendor.InvalidRecordError("x"), Verdict.REJECTED, Reason.INVALID),
        (vendor.InvalidTimestampError("x"), Verdict.REJECTED, Reason.INVALID),
        (vendor.PolicyViolationError("x"), Verdict.REJECTED, Reason.INVALID),
        (ValueError("x"), Verdict.REJECTED, Reason.INVALID),
        ("\ud800".encode, Verdict.REJECTED, Reason.INVALID),
        (
            vendor.UnknownTopicOrPartitionError("x"),
            Verdict.TARGET_FAILED,
            Reason.TARGET_MISSING,
        ),
        (vendor.TopicAuthorizationFailedError("x"), Verdict.TARGET_FAILED, Reason.UNAUTHORIZED),
        (vendor.ClusterAuthorizationFailedError("x"), Verdict.TARGET_FAILED, Reason.UNAUTHORIZED),
        (vendor.NotEnoughReplicasError("x"), Verdict.FAILED, Reason.ATTEMPTS_EXHAUSTED),
        (NotTriedAlone("x"), Verdict.FAILED, Reason.ATTEMPTS_EXHAUSTED),
        (NotSent("x"), Verdict.UNAVAILABLE, Reason.ATTEMPTS_EXHAUSTED),
        (Unanswered("x"), Verdict.INDETERMINATE, Reason.ATTEMPTS_EXHAUSTED),
        (vendor.KafkaConnectionError("x"), Verdict.INDETERMINATE, Reason.ATTEMPTS_EXHAUSTED),
        (vendor.KafkaTimeoutError("x"), Verdict.INDETERMINATE, Reason.ATTEMPTS_EXHAUSTED),
        (vendor.RequestTimedOutError("x"), Verdict.INDETERMINATE, Reason.ATTEMPTS_EXHAUSTED),
        (vendor.IllegalStateError("x"), Verdict.INDETERMINATE, Reason.ATTEMPTS_EXHAUSTED),
        (
            vendor.NotEnoughReplicasAfterAppendError("x"),
            Verdict.INDETERMINATE,
            Reason.ATTEMPTS_EXHAUSTED,
        ),
        (
            vendor.NotLeaderForPartitionError("x"),
            Verdict.INDETERMINATE,
            Reason.ATTEMPTS_EXHAUSTED,
        ),
    ],
)
def test_outcome_of_a_known_error_is_what_it_means(
    error: object, verdict: Verdict, reason: Reason
) -> None:
    answer = _raised_by(error) if callable(error) else error
    assert isinstance(answer, BaseException)
    outcome = outcome_of(answer)
    assert (outcome.verdict, outcome.reason) == (verdict, reason)
    assert outcome.error.startswith(f"{type(answer).__name__}\n")


def test_outcome_of_an_error_code_of_a_newer_broker_is_indeterminate() -> None:
    assert outcome_of(vendor.for_code(32_000)("new")).verdict is Verdict.INDETERMINATE


def test_outcome_of_no_error_is_confirmed() -> None:
    assert outcome_of(None) is CONFIRMED


def test_refusals_that_hit_a_whole_batch_are_checked_alone() -> None:
    assert may_be_a_neighbours_fault(vendor.InvalidRecordError("x"))
    assert may_be_a_neighbours_fault(vendor.KafkaError("part of a batch"))
    assert not may_be_a_neighbours_fault(vendor.NotEnoughReplicasError("x"))
    assert not may_be_a_neighbours_fault(vendor.UnknownTopicOrPartitionError("x"))
    assert not may_be_a_neighbours_fault(vendor.RequestTimedOutError("x"))
    assert not may_be_a_neighbours_fault(None)


def test_errors_of_a_moment_are_temporary() -> None:
    assert is_temporary(vendor.NotLeaderForPartitionError("x"))
    assert is_temporary(vendor.NotEnoughReplicasError("x"))
    assert not is_temporary(vendor.InvalidRecordError("x"))
    assert not is_temporary(None)


def _raised_by(call: object) -> BaseException:
    with pytest.raises(Exception) as raised:  # noqa: PT011
        call()  # type: ignore[operator]
    return raised.value
