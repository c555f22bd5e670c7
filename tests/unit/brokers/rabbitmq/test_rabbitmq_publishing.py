"""What RabbitMQ's connector concludes: errors, confirms, returns, its thread."""

import inspect
import threading
from collections.abc import Iterator
from contextlib import closing

import pytest
from pika import exceptions as vendor
from pika.exceptions import ChannelClosedByBroker
from pika.spec import Basic
from structlog.testing import capture_logs

from duebridge.envelope import Target
from duebridge.ports.publisher import CONFIRMED, Delivery, Outcome, Reason, Verdict
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
from duebridge_connectors.rabbitmq.publishing.batch import (
    PendingMessage,
    PublishBatch,
    UnconfirmedMessages,
)
from duebridge_connectors.rabbitmq.publishing.closing import judge
from duebridge_connectors.rabbitmq.publishing.link import FIRST_DELAY_S, MOST_DELAY_S, Link
from duebridge_connectors.rabbitmq.publishing.publisher import RabbitPublisher
from duebridge_connectors.rabbitmq.publishing.topics import TopicPermissions
from duebridge_connectors.rabbitmq.settings import connection_parameters
from tests.support.servers import free_port

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


def test_look_up_each_vendor_error_finds_a_row() -> None:
    assert set(DEFINED) <= TABLE.keys()
    assert set(REPLIES) == REPLY_CODES


def test_rows_with_a_reason_of_their_own_are_those_that_can_be_buried_for_it() -> None:
    for verdict, reason, _ in (*TABLE.values(), *REPLIES.values()):
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
        (406, "PRECONDITION_FAILED - message size 2 is larger than configured max size 1",
         Verdict.REJECTED, Reason.TOO_LARGE),
        (541, "INTERNAL_ERROR", Verdict.INDETERMINATE, EXHAUSTED),
        (999, "never heard of", Verdict.INDETERMINATE, EXHAUSTED),
    ],
)  # fmt: skip
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


RETURNED = Outcome(Verdict.TARGET_FAILED, Reason.UNROUTABLE, "UnroutableError", "312")
MISSING = ChannelClosedByBroker(404, "NOT_FOUND - no exchange")
REFUSED = ChannelClosedByBroker(403, "ACCESS_REFUSED - access to topic")
INVALID = ChannelClosedByBroker(406, "PRECONDITION_FAILED - invalid expiration")


def messages(*ids: str) -> list[PendingMessage]:
    batch = PublishBatch(len(ids))
    return [
        PendingMessage(batch, place, id_, f"key-{id_}", b"", b"", b"", False)
        for place, id_ in enumerate(ids)
    ]


def filled(*ids: str) -> tuple[UnconfirmedMessages, list[PendingMessage]]:
    window, sent = UnconfirmedMessages(), messages(*ids)
    for message in sent:
        window.add(message)
    return window, sent


def numbered(sent: list[PendingMessage]) -> dict[int, PendingMessage]:
    return dict(enumerate(sent, start=1))


# Which message an answer is about.


def test_take_single_tags_out_of_order_gives_each_once() -> None:
    window, sent = filled("a", "b", "c")
    assert window.take(2, multiple=False) == [sent[1]]
    assert window.take(2, multiple=False) == []
    assert window.take(3, multiple=True) == [sent[0], sent[2]]
    assert not window.by_tag


def test_take_multiple_gives_all_up_to_the_tag_and_all_for_zero() -> None:
    window, sent = filled("a", "b", "c", "d", "e")
    assert window.take(2, multiple=True) == sent[:2]
    assert window.take(3, multiple=True) == sent[2:3]
    assert list(window.by_tag.values()) == sent[3:]
    assert window.take(0, multiple=True) == sent[3:]


def test_return_before_the_ack_makes_that_parcel_unroutable_alone() -> None:
    window, sent = filled("a", "b", "c")
    for returned in ("b", "unknown"):
        window.give_back(returned, RETURNED)
    for message in window.take(3, multiple=True):
        message.settle(CONFIRMED)
    assert sent[0].batch.outcomes == [CONFIRMED, RETURNED, CONFIRMED]


@pytest.mark.parametrize("twin_is_confirmed", [False, True])
def test_return_of_an_id_under_way_twice_leaves_both_in_doubt(twin_is_confirmed: bool) -> None:
    window, (first, second) = filled("a", "a")
    if twin_is_confirmed:
        window.take(1, multiple=False)[0].settle(CONFIRMED)
    window.give_back("a", RETURNED)
    for message in window.take(2, multiple=True):
        message.settle(CONFIRMED)
    verdicts = [outcome.verdict for outcome in first.batch.outcomes if outcome]
    if twin_is_confirmed:  # then it was the other one that came back
        assert verdicts == [Verdict.CONFIRMED, Verdict.TARGET_FAILED]
    else:
        assert verdicts == [Verdict.INDETERMINATE] * 2
    assert second.is_settled


def test_wait_for_a_batch_that_is_over_is_no_wait() -> None:
    window, sent = filled("a")
    assert window.is_awaited()
    sent[0].batch.end(CONFIRMED, CONFIRMED)
    assert not window.is_awaited()


# What a closed channel says.


def test_judge_several_leaves_each_in_doubt() -> None:
    judgement = judge(INVALID, numbered(messages("a", "b")), asked_at=None)
    assert [o.verdict for _, o in judgement.settled] == [Verdict.INDETERMINATE] * 2
    assert judgement.is_doubtful
    assert judgement.unread == []


def test_judge_what_follows_an_unanswered_question_finds_it_unread() -> None:
    sent = messages("a", "b", "c")
    judgement = judge(INVALID, numbered(sent), asked_at=2)
    assert [message for message, _ in judgement.settled] == sent[:1]
    assert judgement.settled[0][1].verdict is Verdict.REJECTED
    assert judgement.unread == sent[1:]


@pytest.mark.parametrize("before", [0, 1])
def test_judge_a_missing_exchange_refuses_what_was_unread_and_doubts_what_was_before(
    before: int,
) -> None:
    sent = messages("a", "b", "c")
    judgement = judge(MISSING, numbered(sent), asked_at=1 + before)
    found = [(message, outcome.verdict) for message, outcome in judgement.settled]
    assert found == [(sent[0], Verdict.INDETERMINATE)][:before]
    assert judgement.unread == sent[before:]
    assert judgement.refused is not None
    assert judgement.refused.verdict is Verdict.TARGET_FAILED
    assert judgement.refused.reason is Reason.TARGET_MISSING


def forbidden(key: str) -> ChannelClosedByBroker:
    where = "in exchange 'x' in vhost '/' refused for user 'u'"
    return ChannelClosedByBroker(403, f"ACCESS_REFUSED - access to topic '{key}' {where}")


@pytest.mark.parametrize("asked_at", [None, 5])
def test_judge_a_forbidden_topic_refuses_its_last_message_and_sends_what_follows_again(
    asked_at: int | None,
) -> None:
    """Also while a declaration is unanswered, which RabbitMQ asks no permission for."""
    sent = messages("a", "b", "c", "d", "e")
    keys = ("open", "shut", "shut", "open", "open")
    for message, key in zip(sent, keys, strict=True):
        message.routing_key = key
    judgement = judge(forbidden("shut"), numbered(sent), asked_at)
    doubt = Verdict.INDETERMINATE
    assert [o.verdict for _, o in judgement.settled] == [doubt, doubt, Verdict.TARGET_FAILED]
    assert judgement.unread == sent[3:]
    assert (judgement.refused_key, judgement.is_doubtful) == ("shut", False)
    assert judgement.is_of_topic


def cut(closed: ChannelClosedByBroker) -> ChannelClosedByBroker:
    """Return it with the text that RabbitMQ sends if it is too long, as pika reads that."""
    text = closed.reply_text.encode()[:252] + b"..."
    try:
        return ChannelClosedByBroker(403, text.decode())
    except UnicodeDecodeError:
        return ChannelClosedByBroker(403, text)


def test_judge_a_forbidden_topic_whose_name_is_cut_refuses_the_only_one_that_begins_so() -> None:
    sent = messages("a", "b")
    sent[0].routing_key = "x" * 240
    judgement = judge(cut(forbidden(sent[0].routing_key)), numbered(sent), asked_at=None)
    assert [o.verdict for _, o in judgement.settled] == [Verdict.TARGET_FAILED]
    assert judgement.unread == sent[1:]


@pytest.mark.parametrize(
    "closed",
    [forbidden("another"), cut(forbidden("x" * 240)), cut(forbidden("x" + "é" * 120))],
    ids=["other", "two begin so", "cut amid a character"],
)
def test_judge_a_forbidden_topic_that_the_text_does_not_name_whole_doubts_all(
    closed: ChannelClosedByBroker,
) -> None:
    sent = messages("a", "b")
    sent[0].routing_key, sent[1].routing_key = "x" * 240, "x" * 241
    judgement = judge(closed, numbered(sent), asked_at=None)
    assert [o.verdict for _, o in judgement.settled] == [Verdict.INDETERMINATE] * 2
    assert (judgement.is_doubtful, judgement.is_of_topic) == (True, True)


def test_judge_a_forbidden_topic_of_a_cc_header_refuses_no_other_of_the_routing_key() -> None:
    judgement = judge(forbidden("copy"), numbered(messages("a")), asked_at=None)
    assert [o.verdict for _, o in judgement.settled] == [Verdict.TARGET_FAILED]
    assert judgement.refused is None


def test_topic_permissions_let_a_key_prove_itself_for_a_minute() -> None:
    now = [0.0]
    topics = TopicPermissions(lambda: now[0])
    assert not topics.may_refuse("a"), "none was refused"
    topics.note_refusal("c")
    topics.note_accepted("a")
    assert (topics.may_refuse("a"), topics.may_refuse("b")) == (False, True)
    now[0] = 60.0
    assert not topics.may_refuse("b")


def test_topic_permissions_let_a_key_that_is_refused_later_prove_itself_again() -> None:
    topics = TopicPermissions()
    topics.note_refusal("other")
    topics.note_accepted("a")
    topics.note_refusal("a")
    assert topics.may_refuse("a")


def test_judge_nothing_under_way_refuses_what_waits_as_unsent() -> None:
    judgement = judge(ChannelClosedByBroker(541, "INTERNAL_ERROR"), {}, asked_at=None)
    assert judgement.refused is not None
    assert judgement.refused.verdict is Verdict.UNAVAILABLE


STEP_S = 10.0


@pytest.fixture
def absent() -> Iterator[Link]:
    """Give a link to nobody, that has tried already."""
    tried = threading.Event()

    def never_again(_: float, most: float) -> float:
        tried.set()
        return most + 3600

    link = Link(connection_parameters({"url": f"amqp://127.0.0.1:{free_port()}/"}), never_again)
    with closing(link):
        assert tried.wait(STEP_S)
        link.publish(PublishBatch(1), seconds=STEP_S)  # answered once the try was logged
        yield link


def test_reconnect_to_nobody_doubles_the_delay_up_to_the_most() -> None:
    asked: list[tuple[float, float]] = []
    enough = threading.Event()

    def at_once(least: float, most: float) -> float:
        asked.append((least, most))
        if len(asked) == 8:
            enough.set()
        return 0.0

    parameters = connection_parameters({"url": f"amqp://127.0.0.1:{free_port()}/"})
    with closing(Link(parameters, at_once)):
        assert enough.wait(STEP_S)
    mosts = [most for _, most in asked]
    assert mosts[:4] == [FIRST_DELAY_S * 2**n for n in range(4)]
    assert mosts[4:8] == [MOST_DELAY_S] * 4
    assert all(least == most / 2 for least, most in asked)


def test_publish_between_two_tries_is_refused_at_once_with_the_cause(absent: Link) -> None:
    (outcome,) = absent.publish(PublishBatch(1), seconds=STEP_S)
    assert outcome.verdict is Verdict.UNAVAILABLE
    assert outcome.error_class == "ConnectionRefusedError"


def test_publish_after_close_is_refused_at_once(absent: Link) -> None:
    absent.close()
    absent.close()
    assert not absent.is_alive
    assert absent.publish(PublishBatch(1), seconds=STEP_S)[0].verdict is Verdict.UNAVAILABLE


class Faulty(PublishBatch):
    """Breaks whoever settles it."""

    def settle_rest(self, outcome: Outcome) -> None:
        raise RuntimeError(outcome)


def test_break_down_of_the_thread_is_logged_and_ends_the_link(absent: Link) -> None:
    with capture_logs() as logs:
        outcomes = absent.publish(Faulty(1), seconds=0.1)
        absent.close()
    assert [entry["event"] for entry in logs] == ["rabbitmq_thread_failed"]
    assert outcomes[0].verdict is Verdict.UNAVAILABLE
    assert not absent.is_alive


def test_publish_to_a_topic_is_rejected_without_a_connection() -> None:
    parameters = connection_parameters({"url": f"amqp://127.0.0.1:{free_port()}/"})
    publisher = RabbitPublisher(parameters, STEP_S)
    kafka = Delivery("id", Target("x", topic="t"), b"")
    with closing(publisher):
        assert publisher.publish([kafka])[0].verdict is Verdict.REJECTED
