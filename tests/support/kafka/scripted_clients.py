"""Clients of Kafka that answer as told, by either library."""

import threading
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any, ClassVar

from confluent_kafka import KafkaError, KafkaException, Message

from duebridge.ports.publisher import Delivery
from duebridge_connectors.kafka.attempt import Deadline
from duebridge_connectors.kafka.errors import RequestFailed
from duebridge_connectors.kafka.kafka_python.client import KafkaPythonClient, refusal_of
from duebridge_connectors.kafka.leaders import Leaders
from duebridge_connectors.kafka.librdkafka.client import Answered, LibrdkafkaClient
from duebridge_connectors.kafka.librdkafka.errors import answered_refusal

from kafka import errors as vendor  # isort: skip
from kafka import TopicPartition  # isort: skip
from kafka.producer.future import FutureProduceResult, FutureRecordMetadata  # isort: skip

DONE, MUTE, REFUSED = "confirmed", "mute", "refused by the client"
MOVED, SHORT, LOST = "moved", "short of replicas", "lost"
INVALID, BESIDE, DENIED = "invalid", "beside an invalid one", "denied"
ASTRAY = "to a partition that is missing"
SLOW = "invalid, after most of the time"
LATE = "denied, once the next is sent"
ASIDE = "denied, on the client's own thread"
GONE = ("missing", "deleted")
DEADLINE_S = 60.0  # which no busy machine uses up
PART = 3


class ScriptedDeadline(Deadline):
    """A deadline that answers use up, without anybody waiting for it."""

    def use_up(self, share: float = 1.0) -> None:
        self._at -= share * DEADLINE_S


class Scripted:
    """The part of a client that does as told; `missing` and `deleted` are gone, it knows one."""

    answers: Iterator[str]
    built: "list[Any]"
    deadline: ScriptedDeadline
    is_reachable = True
    is_away = False

    def __init__(self, config: Mapping[str, object]) -> None:
        self.turn = threading.Lock()
        self.has_ended = False
        self.leaders = Leaders()
        self.asked = 0
        self.looked_up: list[str] = []
        self.sent: list[str] = []
        self.late: list[Callable[[], Any]] = []
        self.reports: list[threading.Thread] = []
        self.is_reporting = threading.Event()
        self.is_single = config.get("batch_size") == 0 or "batch.num.messages" in config
        self.built.append(self)

    def next_answer(self, delivery: Delivery) -> str:
        self.sent.append(delivery.id)
        while self.late:
            self.late.pop()()
        answer = next(Scripted.answers)
        if answer == MUTE:
            Scripted.deadline.use_up()
        if answer == SLOW:
            Scripted.deadline.use_up(0.45)
            return INVALID
        return answer

    def knows(self, topic: str) -> bool:
        return topic in {"known", "deleted"}

    def forget(self, topic: str) -> None: ...

    def refresh(self, timeout_s: float) -> None: ...

    def ping(self, timeout_s: float) -> None:
        self.asked += 1
        if not Scripted.is_reachable:
            raise RequestFailed("nobody there")

    def is_alive(self) -> bool:
        return not self.has_ended

    def retire(self, *_: float) -> None:
        self.has_ended = True


class Python(Scripted, KafkaPythonClient):
    errors: ClassVar[dict[str, Any]] = {
        MOVED: vendor.NotLeaderForPartitionError,
        SHORT: vendor.NotEnoughReplicasError,
        LOST: vendor.KafkaConnectionError,
        INVALID: vendor.InvalidRecordError,
        BESIDE: vendor.KafkaError,
        ASTRAY: vendor.UnknownTopicOrPartitionError,
        DENIED: vendor.TopicAuthorizationFailedError,
    }

    def send(self, delivery: Delivery) -> FutureRecordMetadata:
        answer = self.next_answer(delivery)
        if answer == REFUSED:
            raise vendor.MessageSizeTooLargeError("x")
        result = FutureProduceResult(TopicPartition("known", PART))
        future = FutureRecordMetadata(result, 0, 0, None, 0, 0, 0)
        if answer == MUTE:
            return future
        if answer == DONE:
            result.success((0, -1, None))
            return future
        if answer == LATE:
            self.late.append(lambda: future.failure(self.errors[DENIED]("x")))
            return future
        return future.failure(self.errors[answer]("x"))

    def look_up(self, topics: Collection[str], timeout_s: float) -> dict[str, Any]:
        missing = refusal_of(vendor.UnknownTopicOrPartitionError("missing"))
        self.looked_up += topics
        return {topic: missing if topic in GONE else None for topic in topics}


class Lib(Scripted, LibrdkafkaClient):
    errors: ClassVar[dict[str, Any]] = {
        SHORT: KafkaError.NOT_ENOUGH_REPLICAS,
        LOST: KafkaError._TRANSPORT,
        INVALID: KafkaError.INVALID_RECORD,
        BESIDE: KafkaError._INVALID_DIFFERENT_RECORD,
        ASTRAY: KafkaError._UNKNOWN_PARTITION,
        DENIED: KafkaError.TOPIC_AUTHORIZATION_FAILED,
    }

    def send(self, delivery: Delivery, on_answer: Answered) -> None:
        answer = self.next_answer(delivery)
        if answer == REFUSED:
            raise KafkaException(KafkaError(KafkaError.MSG_SIZE_TOO_LARGE))
        if answer == LATE:
            denied = KafkaError(self.errors[DENIED])
            self.late.append(lambda: on_answer(denied, Message(partition=PART)))
        elif answer == ASIDE:
            report = KafkaError(self.errors[DENIED]), Message(partition=PART)
            self.reports.append(threading.Thread(target=on_answer, args=report))
            self.reports[-1].start()
            assert self.is_reporting.wait(60)
            Scripted.deadline.use_up()
        elif answer != MUTE:
            error = None if answer == DONE else KafkaError(self.errors[answer])
            on_answer(error, Message(partition=PART))

    def look_up(self, topics: Collection[str], timeout_s: float) -> dict[str, Any]:
        missing = answered_refusal(KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART))
        self.looked_up += topics
        return {topic: missing if topic in GONE else None for topic in topics}
