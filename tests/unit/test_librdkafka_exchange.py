"""The bookkeeping of a batch, against a client that answers as told; no broker would on demand."""

import threading
import time
from collections.abc import Callable

from confluent_kafka import KafkaError, KafkaException

from duebridge.envelope import Target
from duebridge.ports.publisher import Delivery, Verdict
from duebridge_connectors.kafka.deadline import Deadline
from duebridge_connectors.kafka.librdkafka.client import Answered, Client, NotSent
from duebridge_connectors.kafka.librdkafka.exchange import Exchange

Send = Callable[[Delivery, Answered], None]

CONFIRMED, FAILED = Verdict.CONFIRMED, Verdict.FAILED
INDETERMINATE, UNAVAILABLE = Verdict.INDETERMINATE, Verdict.UNAVAILABLE


class TellingClient(Client):
    """A client whose sends do as told; it lacks the topic `missing`, of `mute` it hears nothing."""

    def __init__(self, send: Send) -> None:
        self.turn = threading.Lock()
        self.has_ended = False
        self._known = {"known"}
        self._send = send
        self.sent: list[str] = []

    def send(self, delivery: Delivery, on_answer: Answered) -> None:
        self.sent.append(delivery.id)
        self._send(delivery, on_answer)

    def look_up(self, topic: str, timeout_s: float) -> KafkaError | None:
        if topic == "mute":
            raise NotSent("no answer")
        if topic == "missing":
            return KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART)
        self._known.add(topic)
        return None


def exchange(*topics: str, deadline_s: float = 5.0) -> Exchange:
    batch = [Delivery(str(n), Target("k", topic=topic), b"") for n, topic in enumerate(topics)]
    return Exchange(batch, Deadline(deadline_s))


def unanswered(_: Delivery, on_answer: Answered) -> None: ...


def confirmed(_: Delivery, on_answer: Answered) -> None:
    on_answer(None, None)


def failed(code: int) -> Send:
    return lambda _, on_answer: on_answer(KafkaError(code), None)


def raising(error: Exception) -> Send:
    def send(_: Delivery, on_answer: Answered) -> None:
        raise error

    return send


def carry(given: Exchange, send: Send) -> TellingClient:
    client = TellingClient(send)
    given.carry(client, range(len(given.batch)))
    return client


def found(given: Exchange) -> list[Verdict]:
    return [outcome.verdict for outcome in given.outcomes]


def test_outcomes_before_anything_was_tried_confirm_nothing() -> None:
    assert found(exchange("known", "known")) == [UNAVAILABLE] * 2


def test_carry_what_is_never_answered_ends_at_the_deadline_indeterminate() -> None:
    given = exchange("known", "known", deadline_s=0.05)
    started = time.monotonic()
    carry(given, unanswered)
    assert time.monotonic() - started < 1
    assert found(given) == [INDETERMINATE] * 2


def test_carry_with_one_unanswered_keeps_the_answers_of_the_others() -> None:
    given = exchange("known", "known", "known", deadline_s=0.05)
    carry(given, lambda d, answer: (unanswered if d.id == "0" else confirmed)(d, answer))
    assert found(given) == [INDETERMINATE, CONFIRMED, CONFIRMED]


def test_carry_answered_by_another_thread_ends_with_the_last_answer() -> None:
    calls: list[Answered] = []
    given = exchange("known", "known", deadline_s=5.0)
    running = threading.Thread(target=carry, args=(given, lambda _, answer: calls.append(answer)))
    running.start()
    while len(calls) < 2:
        pass
    calls[0](None, None)
    calls[1](KafkaError(KafkaError._TRANSPORT), None)
    running.join(4.0)
    assert not running.is_alive()
    assert found(given) == [CONFIRMED, INDETERMINATE]


def test_carry_past_the_deadline_sends_nothing() -> None:
    given = exchange("known", deadline_s=0)
    assert carry(given, confirmed).sent == []
    assert found(given) == [UNAVAILABLE]


def test_carry_past_the_deadline_while_another_hands_over_sends_nothing() -> None:
    given = exchange("known", deadline_s=0.01)
    client = TellingClient(confirmed)
    with client.turn:
        given.carry(client, [0])
    assert client.sent == []
    assert found(given) == [UNAVAILABLE]


def test_carry_by_a_client_that_has_ended_sends_nothing() -> None:
    given = exchange("known")
    client = TellingClient(confirmed)
    client.has_ended = True
    given.carry(client, [0])
    assert client.sent == []
    assert found(given) == [UNAVAILABLE]


def test_carry_unknown_topics_goes_after_the_known_ones() -> None:
    given = exchange("new", "known", "missing", "known", "mute")
    assert carry(given, confirmed).sent == ["1", "3", "0"]
    assert found(given) == [CONFIRMED, CONFIRMED, Verdict.TARGET_FAILED, CONFIRMED, UNAVAILABLE]


def test_carry_to_a_topic_that_has_gone_makes_it_unknown() -> None:
    client = carry(exchange("known"), failed(KafkaError._UNKNOWN_TOPIC))
    assert not client.knows("known")


def test_carry_what_the_client_refuses_is_not_the_brokers_refusal() -> None:
    given = exchange("known")
    carry(given, raising(KafkaException(KafkaError(KafkaError.MSG_SIZE_TOO_LARGE))))
    assert found(given) == [Verdict.REJECTED]
    assert given.refused == set()


def test_carry_what_the_broker_refuses_is_remembered_as_such() -> None:
    given = exchange("known", "known")
    carry(given, failed(KafkaError.INVALID_RECORD))
    assert given.refused == {0, 1}


def test_carry_again_what_was_temporary_forgets_that_it_was() -> None:
    given = exchange("known", "known")
    carry(given, failed(KafkaError.NOT_ENOUGH_REPLICAS))
    assert (found(given), given.temporary) == ([FAILED] * 2, {0, 1})
    given.carry(TellingClient(confirmed), [0])
    assert (found(given), given.temporary) == ([CONFIRMED, FAILED], {1})
