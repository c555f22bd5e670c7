"""What either Kafka client's publisher concludes and tries again; no broker errs on demand."""

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from types import ModuleType
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

import duebridge_connectors.kafka.kafka_python.connection as python_connection
import duebridge_connectors.kafka.librdkafka.attempt as lib_attempt
import duebridge_connectors.kafka.librdkafka.connection as lib_connection
import duebridge_connectors.kafka.publisher as publisher_module
from duebridge.envelope import Target
from duebridge.ports.publisher import BrokerUnavailable, Delivery, Outcome, Reason, Verdict
from duebridge_connectors.kafka.attempt import AttemptError, Deadline
from duebridge_connectors.kafka.errors import RequestFailed
from duebridge_connectors.kafka.kafka_python import open_kafka_python
from duebridge_connectors.kafka.librdkafka import open_librdkafka
from duebridge_connectors.kafka.librdkafka.errors import answered_refusal
from duebridge_connectors.kafka.publisher import KafkaPublisher
from tests.support.contract.broker_under_test import verdicts
from tests.support.kafka.scripted_clients import (
    ASIDE,
    ASTRAY,
    BESIDE,
    DEADLINE_S,
    DENIED,
    DONE,
    INVALID,
    LATE,
    LOST,
    MOVED,
    MUTE,
    PART,
    REFUSED,
    SHORT,
    SLOW,
    Lib,
    Python,
    Scripted,
    ScriptedDeadline,
)
from tests.support.running_clock import ends_within

C, REJECTED = Verdict.CONFIRMED, Verdict.REJECTED
OPEN, AWAY, NO_TARGET = Verdict.INDETERMINATE, Verdict.UNAVAILABLE, Verdict.TARGET_FAILED
TARGET_AWAY = Verdict.TARGET_UNAVAILABLE
DEFERRED = Verdict.DEFERRED

Publisher = KafkaPublisher[Any]
KINDS: dict[str, tuple[type[Any], ModuleType, Callable[..., Publisher]]] = {
    "kafka-python": (Python, python_connection, open_kafka_python),
    "librdkafka": (Lib, lib_connection, open_librdkafka),
}


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def publisher(kind: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Publisher]:
    client, connection, open_publisher = KINDS[kind]
    monkeypatch.setattr(connection, client.__mro__[2].__name__, client)
    monkeypatch.setattr(publisher_module, "RETRY_AFTER_S", (0.0, 0.0))
    monkeypatch.setattr(Scripted, "built", [], raising=False)
    monkeypatch.setattr(Scripted, "is_reachable", True)
    monkeypatch.setattr(publisher_module, "Deadline", scripted_deadline)
    with closing(open_publisher({}, DEADLINE_S)) as opened:
        yield opened


def scripted_deadline(within_s: float) -> Deadline:
    Scripted.deadline = ScriptedDeadline(within_s)
    return Scripted.deadline


Send = Callable[..., Sequence[Outcome]]
Publish = Callable[..., list[Verdict]]


@pytest.fixture
def send(publisher: Publisher, monkeypatch: pytest.MonkeyPatch) -> Send:
    """Publish so many deliveries, which meet these answers."""

    def send(*answers: str, size: int = 1, topics: tuple[str, ...] = ()) -> Sequence[Outcome]:
        monkeypatch.setattr(Scripted, "answers", iter(answers), raising=False)
        where = topics or ("known",) * size
        batch = [Delivery(str(n), Target("k", topic=each), b"") for n, each in enumerate(where)]
        outcomes = publisher.publish(batch)
        assert next(Scripted.answers, "all used") == "all used"
        return outcomes

    return send


@pytest.fixture
def publish(send: Send) -> Publish:
    return lambda *answers, **options: verdicts(send(*answers, **options))


@pytest.mark.parametrize(
    ("answers", "expected"),
    [
        ([MUTE, DONE, DONE], [OPEN, C, C]),
        ([LOST, DONE], [OPEN, C]),
        ([SHORT, DONE, DONE], [C, C]),
        ([SHORT, SHORT, SHORT], [TARGET_AWAY]),
        ([REFUSED, DONE], [REJECTED, C]),
        ([DENIED, DONE], [NO_TARGET, C]),
        ([BESIDE, INVALID, BESIDE, DONE, INVALID, DONE], [C, REJECTED, C]),
    ],
)
def test_publish_concludes_from_answers_and_tries_again_what_may_pass(
    publish: Publish, answers: list[str], expected: list[Verdict]
) -> None:
    with ends_within(DEADLINE_S / 2):
        assert publish(*answers, size=len(expected)) == expected


@pytest.mark.parametrize("kind", ["kafka-python"], indirect=True)
@pytest.mark.parametrize(
    "answers", [[MOVED] * 3, [SHORT, MOVED, MOVED], [MOVED, SHORT, SHORT], [MOVED, DENIED]]
)
def test_publish_to_a_partition_that_may_have_stored_it_stays_unsure(
    send: Send, answers: list[str]
) -> None:
    (outcome,) = send(*answers)
    assert outcome.verdict is TARGET_AWAY
    assert outcome.may_be_published


def test_publish_names_the_partition_of_an_answer_and_shares_the_outcome(
    kind: str, send: Send
) -> None:
    first, second, lost = send(DONE, DONE, LOST, size=3)
    assert [first.part, second.part, lost.part] == [PART] * 3
    assert first is second
    (unanswered,) = send(MUTE)
    assert unanswered.part == (PART if kind == "kafka-python" else -1)


def test_publish_to_unknown_topics_goes_after_the_known_ones(publish: Publish) -> None:
    topics = ("new", "known", "missing", "known")
    assert publish(DONE, DONE, DONE, topics=topics) == [C, C, NO_TARGET, C]
    assert Scripted.built[0].sent == ["1", "3", "0"]


def test_publish_to_missing_partitions_looks_the_topic_up_once_and_sends_again(
    publish: Publish,
) -> None:
    assert publish(ASTRAY, DONE, ASTRAY, DONE, DONE, size=3) == [C] * 3
    (client,) = Scripted.built
    assert client.looked_up == ["known"]
    assert client.sent == ["0", "1", "2", "0", "2"]


def test_publish_to_partitions_that_stay_missing_is_the_targets_trouble(send: Send) -> None:
    (outcome,) = send(ASTRAY, ASTRAY)
    assert (outcome.verdict, outcome.may_be_published) == (TARGET_AWAY, False)
    assert Scripted.built[0].looked_up == ["known"]


def test_publish_to_a_deleted_topic_fails_that_target_after_one_look_up(send: Send) -> None:
    outcomes = send(ASTRAY, ASTRAY, DONE, topics=("deleted", "deleted", "known"))
    assert verdicts(outcomes) == [NO_TARGET, NO_TARGET, C]
    assert outcomes[0].reason is Reason.TARGET_MISSING
    assert Scripted.built[0].looked_up == ["deleted"]


def test_deadline_that_whole_milliseconds_do_not_reach_leaves_no_time() -> None:
    assert Deadline(0.0005).left_s() == 0
    assert Deadline(DEADLINE_S).left_s(at_most=1.0) == 1.0


def test_publish_to_missing_partitions_without_time_to_look_up_is_not_the_targets_failure(
    publish: Publish,
) -> None:
    assert publish(ASTRAY, MUTE, size=2) == [TARGET_AWAY, OPEN]
    assert Scripted.built[0].looked_up == []


def test_publish_to_missing_partitions_that_no_look_up_finds_keeps_the_refusal(
    publish: Publish, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise RequestFailed("nobody there")

    for client in (Python, Lib):
        monkeypatch.setattr(client, "look_up", fail)
    assert publish(ASTRAY, DONE, size=2) == [TARGET_AWAY, C]


def test_publish_refused_while_an_unknown_topic_is_looked_up_is_sure(send: Send) -> None:
    refused, confirmed = send(LATE, DONE, topics=("known", "new"))
    assert (refused.verdict, refused.may_be_published) == (NO_TARGET, False)
    assert confirmed.verdict is C
    assert not Scripted.built[0].has_ended


@pytest.mark.parametrize("kind", ["librdkafka"], indirect=True)
def test_publish_that_ends_while_a_report_is_being_recorded_stays_unsure(
    send: Send, monkeypatch: pytest.MonkeyPatch
) -> None:
    has_returned = threading.Event()

    def judge_slowly(error: KafkaError) -> AttemptError:
        Scripted.built[0].is_reporting.set()
        assert has_returned.wait(60)
        return answered_refusal(error)

    monkeypatch.setattr(lib_attempt, "answered_refusal", judge_slowly)
    (outcome,) = send(ASIDE)
    has_returned.set()
    Scripted.built[0].reports[0].join()
    assert (outcome.verdict, outcome.may_be_published) == (OPEN, True)


def test_publish_while_another_hands_over_until_the_deadline_sends_nothing(
    publisher: Publisher, publish: Publish, monkeypatch: pytest.MonkeyPatch
) -> None:
    publish(DONE)
    monkeypatch.setattr(publisher, "_deadline_s", 0.2)
    with Scripted.built[0].turn:
        assert publish(size=2) == [AWAY] * 2


def test_publish_refused_with_no_way_to_try_alone_counts_no_failure(
    publisher: Publisher, send: Send
) -> None:
    publisher._single.close()
    outcomes = send(INVALID, BESIDE, size=2)
    assert verdicts(outcomes) == [DEFERRED] * 2
    assert not any(outcome.may_be_published for outcome in outcomes)


def test_publish_refused_with_time_for_one_alone_doubts_none_and_goes_on_the_next_time(
    publish: Publish,
) -> None:
    for size in (3, 2):
        refused = [BESIDE] * (size - 1)
        assert publish(INVALID, *refused, SLOW, size=size) == [REJECTED] + [DEFERRED] * len(refused)


def test_publish_refused_and_mute_alone_leaves_only_that_one_in_doubt(publish: Publish) -> None:
    assert publish(INVALID, BESIDE, BESIDE, MUTE, size=3) == [OPEN] + [DEFERRED] * 2


def test_publish_refused_tries_alone_by_a_client_of_single_records(publish: Publish) -> None:
    assert publish(INVALID, DONE) == [C]
    assert [client.is_single for client in Scripted.built] == [False, True]


def test_publish_again_and_again_builds_one_client_and_asks_nothing(publish: Publish) -> None:
    for answer in (DONE, DENIED, DONE):
        publish(answer)
    assert [client.asked for client in Scripted.built] == [0]


def test_publish_after_a_lost_answer_asks_the_broker_once_first(publish: Publish) -> None:
    for answer in (LOST, DONE, DONE):
        publish(answer)
    assert [client.asked for client in Scripted.built] == [1]


def test_publish_after_a_lost_answer_to_nobody_is_unavailable(publish: Publish) -> None:
    publish(LOST)
    Scripted.is_reachable = False
    assert publish(size=2) == [AWAY] * 2


@pytest.mark.parametrize("kind", ["librdkafka"], indirect=True)
def test_publish_after_the_deadline_tries_nothing_again(publish: Publish) -> None:
    assert publish(SHORT, MUTE, size=2) == [TARGET_AWAY, OPEN]


@pytest.mark.parametrize("kind", ["librdkafka"], indirect=True)
def test_publish_after_the_client_lost_every_broker_asks_first(
    publish: Publish, monkeypatch: pytest.MonkeyPatch
) -> None:
    publish(DONE)
    monkeypatch.setattr(Lib, "is_away", True)
    publish(DONE)
    assert Scripted.built[0].asked == 1


def test_publish_after_an_unanswered_delivery_goes_by_another_client(
    publisher: Publisher, publish: Publish
) -> None:
    assert publish(DONE, MUTE, size=2) == [C, OPEN]
    assert publish(DONE) == [C]
    assert len(Scripted.built) == 2
    assert publisher.replaced == 1


def test_publish_refused_and_then_unanswered_gives_up_only_the_mute_client(
    publisher: Publisher, publish: Publish
) -> None:
    publish(INVALID, DONE)
    assert publish(MUTE) == [OPEN]
    assert publish(INVALID, DONE) == [C]
    assert [client.is_single for client in Scripted.built] == [False, True, False]


def test_publish_with_a_client_that_cannot_be_built_is_unavailable(
    kind: str, publisher: Publisher, publish: Publish, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_: Mapping[str, object]) -> None:
        raise KafkaException(KafkaError(KafkaError._INVALID_ARG, "no such file"))

    client, connection, _ = KINDS[kind]
    monkeypatch.setattr(connection, client.__mro__[2].__name__, refuse)
    assert publish(size=1) == [AWAY]
    with pytest.raises(BrokerUnavailable, match="no such file"):
        publisher.ping()


def test_close_ends_every_client_for_good(publisher: Publisher, publish: Publish) -> None:
    publish(INVALID, DONE)
    publisher.close()
    publisher.close()
    assert [client.has_ended for client in Scripted.built] == [True, True]
    assert publish(size=1) == [AWAY]
