"""What the publisher tries again, against clients that answer as told, since no broker would."""

import threading
from collections.abc import Callable, Iterator, Mapping

import pytest

from duebridge.envelope import Target
from duebridge.ports.publisher import Delivery, Verdict
from duebridge_connectors.kafka import KafkaPublisher
from duebridge_connectors.kafka import connection as connection_module
from duebridge_connectors.kafka import publisher as publisher_module
from duebridge_connectors.kafka.client import Client

from kafka import errors as vendor  # isort: skip
from kafka.producer.future import FutureProduceResult, FutureRecordMetadata  # isort: skip

Answers = Iterator[Exception | None]
Publish = Callable[..., list[Verdict]]


class TellingClient(Client):
    """A client that answers each send with the next of the answers told."""

    answers: Answers

    def __init__(self, _: Mapping[str, object]) -> None:
        self.turn = threading.Lock()

    def send(self, _: Delivery) -> FutureRecordMetadata:
        future = FutureRecordMetadata(FutureProduceResult(None), 0, 0, None, 0, 0, 0)
        error = next(self.answers)
        return future.success("at offset 0") if error is None else future.failure(error)

    def knows(self, _: str) -> bool:
        return True

    def ask(self, *_: object) -> dict[str, None]:  # type: ignore[override]
        return {}

    def refresh(self, _: float) -> None: ...

    def retire(self, _: float) -> None: ...


@pytest.fixture
def publish(monkeypatch: pytest.MonkeyPatch) -> Publish:
    monkeypatch.setattr(connection_module, "Client", TellingClient)
    monkeypatch.setattr(publisher_module, "AGAIN_AFTER_S", (0.0, 0.0))

    def publish(size: int, *answers: Exception | None) -> list[Verdict]:
        monkeypatch.setattr(TellingClient, "answers", iter(answers), raising=False)
        batch = [Delivery(str(n), Target("k", topic="t"), b"") for n in range(size)]
        outcomes = KafkaPublisher({}, 5.0).publish(batch)
        assert next(TellingClient.answers, "all used") == "all used"
        return [outcome.verdict for outcome in outcomes]

    return publish


def test_publish_to_a_partition_between_two_leaders_tries_it_again_alone(publish: Publish) -> None:
    moved = vendor.NotLeaderForPartitionError("x")
    assert publish(2, moved, None, moved, None) == [Verdict.CONFIRMED] * 2


def test_publish_to_a_partition_that_stays_short_of_replicas_fails(publish: Publish) -> None:
    short = vendor.NotEnoughReplicasError("x")
    assert publish(1, short, short, short) == [Verdict.FAILED]


def test_publish_to_a_partition_that_may_have_stored_it_stays_indeterminate(
    publish: Publish,
) -> None:
    moved, short = vendor.NotLeaderForPartitionError("x"), vendor.NotEnoughReplicasError("x")
    assert publish(1, moved, moved, moved) == [Verdict.INDETERMINATE]
    assert publish(1, short, moved, moved) == [Verdict.INDETERMINATE]


def test_publish_what_was_lost_under_way_is_not_tried_again(publish: Publish) -> None:
    lost = vendor.KafkaConnectionError("x")
    assert publish(2, lost, None) == [Verdict.INDETERMINATE, Verdict.CONFIRMED]


def test_publish_what_the_broker_refuses_believes_only_the_answer_to_it_alone(
    publish: Publish,
) -> None:
    invalid, beside = vendor.InvalidRecordError("x"), vendor.KafkaError("in its batch")
    found = publish(3, beside, invalid, beside, None, invalid, None)
    assert found == [Verdict.CONFIRMED, Verdict.REJECTED, Verdict.CONFIRMED]
