"""Acks, nacks and returns find their parcels; a closed channel is judged by what is certain."""

import pytest
from pika.exceptions import ChannelClosedByBroker

from duebridge.ports.publisher import CONFIRMED, Outcome, Reason, Verdict
from duebridge_connectors.rabbitmq.batch import Batch, Parcel
from duebridge_connectors.rabbitmq.closing import judge
from duebridge_connectors.rabbitmq.window import Window

RETURNED = Outcome(Verdict.TARGET_FAILED, Reason.UNROUTABLE, "UnroutableError", "312")
MISSING = ChannelClosedByBroker(404, "NOT_FOUND - no exchange")
REFUSED = ChannelClosedByBroker(403, "ACCESS_REFUSED - access to topic")
INVALID = ChannelClosedByBroker(406, "PRECONDITION_FAILED - invalid expiration")


def parcels(*ids: str) -> list[Parcel]:
    batch = Batch(len(ids))
    return [
        Parcel(batch, place, id_, f"key-{id_}", b"", b"", b"", False)
        for place, id_ in enumerate(ids)
    ]


def filled(*ids: str) -> tuple[Window, list[Parcel]]:
    window, sent = Window(), parcels(*ids)
    for parcel in sent:
        window.add(parcel)
    return window, sent


def numbered(sent: list[Parcel]) -> dict[int, Parcel]:
    return dict(enumerate(sent, start=1))


# Which parcel an answer is about.


def test_take_single_tags_out_of_order_gives_each_once() -> None:
    window, sent = filled("a", "b", "c")
    assert window.take(2, multiple=False) == [sent[1]]
    assert window.take(2, multiple=False) == []
    assert window.take(3, multiple=True) == [sent[0], sent[2]]
    assert not window.unconfirmed


def test_take_multiple_gives_all_up_to_the_tag_and_none_beyond() -> None:
    window, sent = filled("a", "b", "c", "d")
    assert window.take(2, multiple=True) == sent[:2]
    assert window.take(3, multiple=True) == sent[2:3]
    assert list(window.unconfirmed.values()) == sent[3:]


def test_take_tag_zero_gives_all() -> None:
    window, sent = filled("a", "b", "c")
    assert window.take(0, multiple=True) == sent


def test_return_before_the_ack_makes_that_parcel_unroutable_alone() -> None:
    window, sent = filled("a", "b", "c")
    window.give_back("b", RETURNED)
    for parcel in window.take(3, multiple=True):
        parcel.settle(CONFIRMED)
    assert sent[0].batch.outcomes == [CONFIRMED, RETURNED, CONFIRMED]


def test_return_of_an_unknown_id_changes_nothing() -> None:
    window, sent = filled("a")
    window.give_back("b", RETURNED)
    assert sent[0].returned is None


@pytest.mark.parametrize("twin_is_confirmed", [False, True])
def test_return_of_an_id_under_way_twice_leaves_both_in_doubt(twin_is_confirmed: bool) -> None:
    window, (first, second) = filled("a", "a")
    if twin_is_confirmed:
        window.take(1, multiple=False)[0].settle(CONFIRMED)
    window.give_back("a", RETURNED)
    for parcel in window.take(2, multiple=True):
        parcel.settle(CONFIRMED)
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


def test_judge_one_alone_blames_it() -> None:
    (only,) = parcels("a")
    judgement = judge(INVALID, {1: only}, asked_at=None)
    ((culprit, outcome),) = judgement.settled
    assert culprit is only
    assert (outcome.verdict, outcome.reason) == (Verdict.REJECTED, Reason.INVALID)
    assert judgement.refused is None


def test_judge_one_alone_at_a_missing_exchange_refuses_all_that_waits() -> None:
    judgement = judge(MISSING, numbered(parcels("a")), asked_at=None)
    assert judgement.refused is judgement.settled[0][1]
    assert judgement.refused_key is None


def test_judge_one_alone_without_permission_refuses_its_routing_key() -> None:
    judgement = judge(REFUSED, numbered(parcels("a")), asked_at=None)
    assert judgement.refused is judgement.settled[0][1]
    assert judgement.refused_key == "key-a"


def test_judge_several_leaves_each_in_doubt() -> None:
    judgement = judge(INVALID, numbered(parcels("a", "b")), asked_at=None)
    assert [o.verdict for _, o in judgement.settled] == [Verdict.INDETERMINATE] * 2
    assert judgement.is_doubtful
    assert judgement.unread == []


def test_judge_what_follows_an_unanswered_question_finds_it_unread() -> None:
    sent = parcels("a", "b", "c")
    judgement = judge(INVALID, numbered(sent), asked_at=2)
    assert [parcel for parcel, _ in judgement.settled] == sent[:1]
    assert judgement.settled[0][1].verdict is Verdict.REJECTED
    assert judgement.unread == sent[1:]


def test_judge_an_exchange_found_missing_refuses_what_was_unread() -> None:
    sent = parcels("a", "b", "c")
    judgement = judge(MISSING, numbered(sent), asked_at=1)
    assert (judgement.settled, judgement.unread) == ([], sent)
    assert judgement.refused is not None
    assert judgement.refused.reason is Reason.TARGET_MISSING


def test_judge_a_missing_exchange_with_some_before_the_question_leaves_those_in_doubt() -> None:
    sent = parcels("a", "b", "c")
    judgement = judge(MISSING, numbered(sent), asked_at=2)
    assert [(p, o.verdict) for p, o in judgement.settled] == [(sent[0], Verdict.INDETERMINATE)]
    assert judgement.unread == sent[1:]
    assert judgement.refused is not None
    assert judgement.refused.verdict is Verdict.TARGET_FAILED


def test_judge_nothing_under_way_refuses_what_waits_as_unsent() -> None:
    judgement = judge(ChannelClosedByBroker(541, "INTERNAL_ERROR"), {}, asked_at=None)
    assert judgement.refused is not None
    assert judgement.refused.verdict is Verdict.UNAVAILABLE
