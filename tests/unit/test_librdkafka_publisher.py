"""What is tried again, and when a client is asked, replaced and ended, with dummy clients."""

import threading
from collections.abc import Callable, Iterator, Mapping

import pytest
from confluent_kafka import KafkaError, KafkaException

from duebridge.envelope import Target
from duebridge.ports.publisher import BrokerUnavailable, Delivery, Verdict
from duebridge_connectors.kafka.librdkafka import LibrdkafkaPublisher
from duebridge_connectors.kafka.librdkafka import connection as connection_module
from duebridge_connectors.kafka.librdkafka import publisher as publisher_module
from duebridge_connectors.kafka.librdkafka.client import Answered, Client, NotSent

MUTE = object()
CONFIRMED = None

Publish = Callable[..., list[Verdict]]


class Dummy(Client):
    """A client that answers each send with the next of the answers told, and counts questions."""

    answers: Iterator[object]
    is_reachable = True
    is_away = False
    built: list["Dummy"]

    def __init__(self, config: Mapping[str, object]) -> None:
        self.turn = threading.Lock()
        self.has_ended = False
        self.pings = 0
        self.is_single = "batch.num.messages" in config
        self.built.append(self)

    def send(self, _: Delivery, on_answer: Answered) -> None:
        answer = next(self.answers)
        if answer is not MUTE:
            on_answer(None if answer is CONFIRMED else KafkaError(answer), None)

    def knows(self, _: str) -> bool:
        return True

    def forget(self, _: str) -> None: ...

    def ping(self, _: float) -> None:
        self.pings += 1
        if not Dummy.is_reachable:
            raise NotSent("nobody there")

    def retire(self) -> None:
        self.has_ended = True


@pytest.fixture(autouse=True)
def _dummies(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection_module, "Client", Dummy)
    monkeypatch.setattr(publisher_module, "AGAIN_AFTER_S", (0.0, 0.0))
    monkeypatch.setattr(Dummy, "built", [], raising=False)
    monkeypatch.setattr(Dummy, "is_reachable", True)


@pytest.fixture
def publisher() -> LibrdkafkaPublisher:
    return LibrdkafkaPublisher({}, 0.2)


@pytest.fixture
def publish(publisher: LibrdkafkaPublisher, monkeypatch: pytest.MonkeyPatch) -> Publish:
    def publish(size: int, *answers: object) -> list[Verdict]:
        monkeypatch.setattr(Dummy, "answers", iter(answers), raising=False)
        batch = [Delivery(str(n), Target("k", topic="t"), b"") for n in range(size)]
        outcomes = publisher.publish(batch)
        assert next(Dummy.answers, "all used") == "all used"
        return [outcome.verdict for outcome in outcomes]

    return publish


def test_publish_to_a_partition_short_of_replicas_tries_it_again(publish: Publish) -> None:
    short = KafkaError.NOT_ENOUGH_REPLICAS
    assert publish(2, short, CONFIRMED, CONFIRMED) == [Verdict.CONFIRMED] * 2


def test_publish_to_a_partition_that_stays_short_of_replicas_fails(publish: Publish) -> None:
    short = KafkaError.NOT_ENOUGH_REPLICAS
    assert publish(1, short, short, short) == [Verdict.FAILED]


def test_publish_what_was_lost_under_way_is_not_tried_again(publish: Publish) -> None:
    lost = KafkaError._TRANSPORT
    assert publish(2, lost, CONFIRMED) == [Verdict.INDETERMINATE, Verdict.CONFIRMED]


def test_publish_what_the_broker_refuses_believes_only_the_answer_to_it_alone(
    publish: Publish,
) -> None:
    invalid, beside = KafkaError.INVALID_RECORD, KafkaError._INVALID_DIFFERENT_RECORD
    found = publish(3, beside, invalid, beside, CONFIRMED, invalid, CONFIRMED)
    assert found == [Verdict.CONFIRMED, Verdict.REJECTED, Verdict.CONFIRMED]
    assert [dummy.is_single for dummy in Dummy.built] == [False, True]


def test_publish_refused_with_no_way_to_try_alone_fails_them_all(
    publisher: LibrdkafkaPublisher, publish: Publish
) -> None:
    publisher._single.close()
    invalid, beside = KafkaError.INVALID_RECORD, KafkaError._INVALID_DIFFERENT_RECORD
    assert publish(2, invalid, beside) == [Verdict.FAILED] * 2


def test_publish_twice_builds_one_client_and_asks_nothing(publish: Publish) -> None:
    publish(1, CONFIRMED)
    publish(1, KafkaError.TOPIC_AUTHORIZATION_FAILED)
    publish(1, CONFIRMED)
    assert [dummy.pings for dummy in Dummy.built] == [0]


def test_publish_after_a_lost_answer_asks_the_broker_first(publish: Publish) -> None:
    publish(1, KafkaError._TRANSPORT)
    publish(1, CONFIRMED)
    publish(1, CONFIRMED)
    assert [dummy.pings for dummy in Dummy.built] == [1]


def test_publish_after_a_lost_answer_to_nobody_is_unavailable(publish: Publish) -> None:
    publish(1, KafkaError._TRANSPORT)
    Dummy.is_reachable = False
    assert publish(2) == [Verdict.UNAVAILABLE] * 2


def test_publish_after_the_client_lost_every_broker_asks_first(
    publish: Publish, monkeypatch: pytest.MonkeyPatch
) -> None:
    publish(1, CONFIRMED)
    monkeypatch.setattr(Dummy, "is_away", True)
    publish(1, CONFIRMED)
    assert Dummy.built[0].pings == 1


def test_publish_after_an_unanswered_delivery_goes_by_another_client(
    publisher: LibrdkafkaPublisher, publish: Publish
) -> None:
    assert publish(2, CONFIRMED, MUTE) == [Verdict.CONFIRMED, Verdict.INDETERMINATE]
    assert publish(1, CONFIRMED) == [Verdict.CONFIRMED]
    assert [dummy.has_ended for dummy in Dummy.built] == [True, False]
    assert publisher.replaced == 1


def test_publish_refused_and_unanswered_gives_up_only_the_client_that_was_mute(
    publisher: LibrdkafkaPublisher, publish: Publish
) -> None:
    found = publish(2, KafkaError.INVALID_RECORD, MUTE)
    assert found == [Verdict.FAILED, Verdict.INDETERMINATE]
    assert [(dummy.is_single, dummy.has_ended) for dummy in Dummy.built] == [
        (False, True),
        (True, False),
    ]


def test_publish_after_the_deadline_tries_nothing_again(publish: Publish) -> None:
    found = publish(2, KafkaError.NOT_ENOUGH_REPLICAS, MUTE)
    assert found == [Verdict.FAILED, Verdict.INDETERMINATE]


def test_publish_with_a_client_that_cannot_be_built_is_unavailable(
    publisher: LibrdkafkaPublisher, publish: Publish, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_: Mapping[str, object]) -> Dummy:
        raise KafkaException(KafkaError(KafkaError._INVALID_ARG, "no such file"))

    monkeypatch.setattr(connection_module, "Client", refuse)
    assert publish(1) == [Verdict.UNAVAILABLE]
    with pytest.raises(BrokerUnavailable, match="no such file"):
        publisher.publish([])


def test_close_ends_every_client(publisher: LibrdkafkaPublisher, publish: Publish) -> None:
    publish(1, KafkaError.INVALID_RECORD, CONFIRMED)
    publisher.close()
    publisher.close()
    assert [dummy.has_ended for dummy in Dummy.built] == [True, True]
