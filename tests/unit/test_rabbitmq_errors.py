"""Every error that pika defines has a verdict of its own, and each reply code of AMQP."""

import inspect

import pytest
from pika import exceptions as vendor
from pika.spec import Basic

from duebridge.ports.publisher import Reason, Verdict
from duebridge_connectors.rabbitmq.errors import (
    REPLIES,
    TABLE,
    Unencodable,
    culprit_outcome,
    not_sent,
    outcome_of,
    root_cause,
    unroutable,
)

DEFINED = [
    value
    for _, value in inspect.getmembers(vendor, inspect.isclass)
    if issubclass(value, BaseException)
]
REPLY_CODES = {
    *{311, 312, 313, 320, 402, 403, 404, 405, 406},
    *{501, 502, 503, 504, 505, 506, 530, 540, 541},
}
EXHAUSTED = Reason.ATTEMPTS_EXHAUSTED


@pytest.mark.parametrize("error", DEFINED, ids=lambda error: error.__name__)
def test_look_up_each_vendor_error_finds_a_row(error: type[BaseException]) -> None:
    assert error in TABLE


def test_look_up_each_reply_code_finds_a_row() -> None:
    assert set(REPLIES) == REPLY_CODES


def test_rows_with_a_reason_of_their_own_are_those_that_can_be_buried_for_it() -> None:
    for verdict, reason in (*TABLE.values(), *REPLIES.values()):
        is_own = reason is not EXHAUSTED
        assert is_own == (verdict in {Verdict.REJECTED, Verdict.TARGET_FAILED})


@pytest.mark.parametrize(
    ("error", "verdict", "reason"),
    [
        (Unencodable("x"), Verdict.REJECTED, Reason.INVALID),
        (vendor.ShortStringTooLong("x"), Verdict.REJECTED, Reason.INVALID),
        (vendor.NackError([]), Verdict.FAILED, EXHAUSTED),
        (vendor.UnroutableError([]), Verdict.TARGET_FAILED, Reason.UNROUTABLE),
        (vendor.StreamLostError("x"), Verdict.INDETERMINATE, EXHAUSTED),
        (vendor.AMQPHeartbeatTimeout("x"), Verdict.INDETERMINATE, EXHAUSTED),
        (vendor.ConnectionBlockedTimeout("x"), Verdict.INDETERMINATE, EXHAUSTED),
        (vendor.ConnectionClosedByBroker(320, "x"), Verdict.INDETERMINATE, EXHAUSTED),
        (vendor.ProbableAuthenticationError("x"), Verdict.UNAVAILABLE, EXHAUSTED),
        (OSError("x"), Verdict.INDETERMINATE, EXHAUSTED),
    ],
    ids=lambda value: type(value).__name__,
)
def test_judge_a_known_error_returns_its_row(
    error: Exception, verdict: Verdict, reason: Reason
) -> None:
    outcome = outcome_of(error)
    assert (outcome.verdict, outcome.reason) == (verdict, reason)
    assert outcome.error_class == type(error).__name__
    assert outcome.error_message


@pytest.mark.parametrize(
    ("code", "text", "verdict", "reason"),
    [
        (403, "ACCESS_REFUSED - x", Verdict.TARGET_FAILED, Reason.UNAUTHORIZED),
        (404, "NOT_FOUND - x", Verdict.TARGET_FAILED, Reason.TARGET_MISSING),
        (406, "PRECONDITION_FAILED - invalid expiration", Verdict.REJECTED, Reason.INVALID),
        (
            406,
            "PRECONDITION_FAILED - message size 2 is larger than configured max size 1",
            Verdict.REJECTED,
            Reason.TOO_LARGE,
        ),
        (541, "INTERNAL_ERROR", Verdict.INDETERMINATE, EXHAUSTED),
        (999, "never heard of", Verdict.INDETERMINATE, EXHAUSTED),
    ],
)
def test_judge_a_culprit_returns_the_row_of_its_reply_code(
    code: int, text: str, verdict: Verdict, reason: Reason
) -> None:
    outcome = culprit_outcome(vendor.ChannelClosedByBroker(code, text))
    assert (outcome.verdict, outcome.reason) == (verdict, reason)
    assert outcome.error_message == f"{code} {text}"


def test_judge_a_return_names_exchange_and_routing_key() -> None:
    outcome = unroutable(Basic.Return(312, "NO_ROUTE", "billing", "due"))
    assert (outcome.verdict, outcome.reason) == (Verdict.TARGET_FAILED, Reason.UNROUTABLE)
    assert "'billing'" in outcome.error_message
    assert "'due'" in outcome.error_message


def test_judge_before_handing_over_is_unavailable_whatever_the_error() -> None:
    for error in (vendor.StreamLostError("x"), vendor.NackError([]), OSError("x")):
        assert not_sent(error).verdict is Verdict.UNAVAILABLE


def test_unwrap_a_failed_connect_finds_what_the_system_said() -> None:
    from pika.adapters.utils.connection_workflow import (
        AMQPConnectionWorkflowFailed,
        AMQPConnectorSocketConnectError,
    )

    refused = ConnectionRefusedError(111, "refused")
    failed = AMQPConnectionWorkflowFailed([AMQPConnectorSocketConnectError(refused)])
    assert root_cause(vendor.AMQPConnectionError(failed)) is refused
    assert root_cause(refused) is refused
