"""The bookkeeping of a batch, against a client that answers as told; no broker would on demand."""

import threading
import time
from collections.abc import Callable, Collection

import pytest

from duebridge.envelope import Target
from duebridge.ports.publisher import Delivery, Verdict
from duebridge_connectors.kafka.answers import Answer
from duebridge_connectors.kafka.client import Client
from duebridge_connectors.kafka.deadline import Deadline
from duebridge_connectors.kafka.errors import NotSent
from duebridge_connectors.kafka.exchange import Exchange

from kafka import errors as vendor  # isort: skip
from kafka.producer.future import FutureProduceResult, FutureRecordMetadata  # isort: skip

Send = Callable[[Delivery], FutureRecordMetadata]


class TellingClient(Client):
    """A client whose sends do as told; it has every topic but `missing`."""

    def __init__(self, send: Send) -> None:
        self.turn = threading.Lock()
        self._send = send
        self.sent: list[str] = []

    def send(self, delivery: Delivery) -> FutureRecordMetadata:
        self.sent.append(delivery.id)
        return self._send(delivery)

    def knows(self, topic: str) -> bool:
        return topic == "known"

    def learn(self, topics: Collection[str], timeout_s: float) -> dict[str, Answer]:
        missing = vendor.UnknownTopicOrPartitionError("missing")
        return {topic: missing if topic == "missing" else None for topic in topics}


def exchange(*topics: str, deadline_s: float = 5.0) -> Exchange:
    batch = [Delivery(str(n), Target("k", topic=topic), b"") for n, topic in enumerate(topics)]
    return Exchange(batch, Deadline(deadline_s))


def unanswered(_: Delivery) -> FutureRecordMetadata:
    return FutureRecordMetadata(FutureProduceResult(None), 0, 0, None, 0, 0, 0)


def confirmed(delivery: Delivery) -> FutureRecordMetadata:
    return unanswered(delivery).success("at offset 0")


def failed(error: Exception) -> Send:
    return lambda delivery: unanswered(delivery).failure(error)


def raising(error: Exception) -> Send:
    def send(_: Delivery) -> FutureRecordMetadata:
        raise error

    return send


def carry(given: Exchange, send: Send) -> TellingClient:
    client = TellingClient(send)
    given.carry(client, range(len(given.batch)))
    return client


def found(given: Exchange) -> list[Verdict]:
    return [outcome.verdict for outcome in given.outcomes()]


def test_outcomes_before_anything_was_tried_confirm_nothing() -> None:
    assert found(exchange("known", "known")) == [Verdict.UNAVAILABLE] * 2


def test_carry_what_is_never_answered_ends_at_the_deadline_indeterminate() -> None:
    given = exchange("known", "known", deadline_s=0.05)
    started = time.monotonic()
    carry(given, unanswered)
    assert time.monotonic() - started < 1
    assert found(given) == [Verdict.INDETERMINATE] * 2


def test_carry_with_one_unanswered_keeps_the_answers_of_the_others() -> None:
    given = exchange("known", "known", "known", deadline_s=0.05)
    carry(given, lambda d: unanswered(d) if d.id == "0" else confirmed(d))
    assert found(given) == [Verdict.INDETERMINATE, Verdict.CONFIRMED, Verdict.CONFIRMED]


def test_carry_past_the_deadline_while_another_hands_over_sends_nothing() -> None:
    given = exchange("known", deadline_s=0.01)
    client = TellingClient(confirmed)
    with client.turn:
        given.carry(client, [0])
    assert client.sent == []
    assert found(given) == [Verdict.UNAVAILABLE]


def test_carry_unknown_topics_goes_after_the_known_ones() -> None:
    given = exchange("new", "known", "missing", "known")
    assert carry(given, confirmed).sent == ["1", "3", "0"]
    confirmed_ = Verdict.CONFIRMED
    assert found(given) == [confirmed_, confirmed_, Verdict.TARGET_FAILED, confirmed_]


@pytest.mark.parametrize("error", [vendor.KafkaTimeoutError("x"), vendor.IllegalStateError("x")])
def test_carry_to_a_topic_that_blocks_tries_it_once(error: Exception) -> None:
    given = exchange("known", "known", "known")
    assert carry(given, raising(error)).sent == ["0"]
    assert found(given) == [Verdict.UNAVAILABLE] * 3


def test_carry_what_the_client_refuses_is_not_the_brokers_refusal() -> None:
    given = exchange("known")
    carry(given, raising(vendor.MessageSizeTooLargeError("x")))
    assert found(given) == [Verdict.REJECTED]
    assert given.refused == set()


def test_carry_what_the_broker_refuses_is_remembered_as_such() -> None:
    given = exchange("known", "known")
    carry(given, failed(vendor.InvalidRecordError("x")))
    assert given.refused == {0, 1}


def test_carry_again_after_an_open_attempt_stays_open_unless_confirmed() -> None:
    given = exchange("known", "known")
    carry(given, failed(vendor.NotLeaderForPartitionError("x")))
    carry(given, lambda d: (confirmed if d.id == "0" else failed(vendor.KafkaError("no")))(d))
    assert found(given) == [Verdict.CONFIRMED, Verdict.INDETERMINATE]


def test_note_after_a_definite_failure_replaces_it() -> None:
    given = exchange("known")
    carry(given, failed(vendor.NotEnoughReplicasError("x")))
    given.note([0], NotSent("away"))
    assert found(given) == [Verdict.UNAVAILABLE]
