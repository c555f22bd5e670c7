"""What AMQP and RabbitMQ make of a batch, on a real broker."""

import os
import signal
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from typing import Any

import pytest
from msgspec.structs import replace

from duebridge.envelope import Headers, Properties, Target
from duebridge.ports.publisher import Delivery, Outcome, Reason, Verdict
from duebridge_connectors.rabbitmq.publishing.publisher import RabbitPublisher
from tests.support.contract.broker_under_test import delivery, ids, verdicts
from tests.support.rabbitmq.rabbitmq_broker import RabbitBroker

DEADLINE_S = 15.0
CONFIRMED = Verdict.CONFIRMED


def elsewhere(target: Target) -> Target:
    """Return a target of the same exchange that no queue is bound to."""
    return Target(target.broker, exchange=target.exchange, routing_key="nowhere")


def faults(outcomes: list[Outcome]) -> set[tuple[Verdict, Reason]]:
    return {(o.verdict, o.reason) for o in outcomes if o.verdict is not CONFIRMED}


def test_publish_a_dead_letter_with_a_key_keeps_it_as_a_header(
    broker: RabbitBroker, publisher: RabbitPublisher, target: Target
) -> None:
    sent = delivery(target, key=b"\xff\x00")
    assert verdicts(publisher.publish([sent])) == [CONFIRMED]
    (received,) = broker.read_all(target)
    assert ("x-dlq-key", b"\xff\x00") in received.headers


def test_publish_a_dead_letter_that_would_expire_keeps_it_with_its_expiration_as_a_header(
    broker: RabbitBroker, publisher: RabbitPublisher, target: Target
) -> None:
    sent = delivery(target, properties=Properties(expiration="0", priority=3))
    letter = replace(sent, is_dead_letter=True)
    assert verdicts(publisher.publish([sent, letter])) == [CONFIRMED] * 2
    (received,) = broker.read_all(target)
    assert received.properties == Properties(priority=3)
    assert received.headers == (("x-dlq-expiration", "0"),)


# The target.


@pytest.mark.parametrize("reason", [Reason.UNROUTABLE, Reason.TARGET_MISSING])
def test_publish_to_a_bad_target_among_good_fails_those_alone(
    broker: RabbitBroker, publisher: RabbitPublisher, target: Target, reason: Reason
) -> None:
    bad = elsewhere(target) if reason is Reason.UNROUTABLE else broker.missing_target()
    batch = [delivery(bad if n % 7 == 3 else target) for n in range(500)]
    outcomes = list(publisher.publish(batch))
    assert [o.verdict is CONFIRMED for o in outcomes] == [d.target is target for d in batch]
    assert faults(outcomes) == {(Verdict.TARGET_FAILED, reason)}
    assert ids(broker.read_all(target)) == [d.id for d in batch if d.target is target]


def test_publish_one_id_twice_with_one_unroutable_confirms_neither_for_the_other(
    publisher: RabbitPublisher, target: Target
) -> None:
    publisher.publish([delivery(target)])  # so that the two of the same id are pipelined
    there = delivery(target)
    not_there = Delivery(there.id, elsewhere(target), b"body", None, there.headers)
    outcomes = publisher.publish([there, not_there])
    assert verdicts(outcomes) == [Verdict.INDETERMINATE] * 2
    assert verdicts(publisher.publish([there])) == [CONFIRMED]


def test_publish_after_exchange_is_deleted_fails_every_delivery_to_it(
    broker: RabbitBroker, publisher: RabbitPublisher, target: Target
) -> None:
    batch = [delivery(target) for _ in range(100)]
    assert verdicts(publisher.publish(batch)) == [CONFIRMED] * 100
    broker.delete(target)
    outcomes = list(publisher.publish(batch))
    assert verdicts(outcomes) == [Verdict.TARGET_FAILED] * 100
    assert faults(outcomes) == {(Verdict.TARGET_FAILED, Reason.TARGET_MISSING)}
    broker.create(target)
    assert verdicts(publisher.publish(batch)) == [CONFIRMED] * 100


def test_publish_to_internal_exchange_is_unauthorized(
    broker: RabbitBroker, publisher: RabbitPublisher, target: Target
) -> None:
    forbidden = broker.missing_target()
    broker.channel.exchange_declare(forbidden.exchange, "direct", internal=True)
    batch = [delivery(forbidden if n < 50 else target) for n in range(100)]
    outcomes = list(publisher.publish(batch))
    broker.delete(forbidden)
    assert verdicts(outcomes) == [Verdict.TARGET_FAILED] * 50 + [CONFIRMED] * 50
    assert faults(outcomes) == {(Verdict.TARGET_FAILED, Reason.UNAUTHORIZED)}


def test_publish_to_full_queue_fails_what_is_refused(
    broker: RabbitBroker, publisher: RabbitPublisher
) -> None:
    target = broker.missing_target()
    broker.create(target, **{"x-max-length": 5, "x-overflow": "reject-publish"})
    outcomes = list(publisher.publish([delivery(target) for _ in range(50)]))
    assert faults(outcomes) == {(Verdict.FAILED, Reason.ATTEMPTS_EXHAUSTED)}
    assert verdicts(outcomes).count(CONFIRMED) == broker.count(target) == 5


def fan_outs(broker: RabbitBroker, target: Target, count: int) -> list[Target]:
    """Return exchanges that lead to the queue of a target."""
    targets = [broker.missing_target() for _ in range(count)]
    for each in targets:
        broker.channel.exchange_declare(each.exchange, "fanout", auto_delete=True)
        broker.channel.queue_bind(target.exchange, each.exchange)
    return targets


def test_publish_to_more_exchanges_than_the_connection_has_channels_confirms_each(
    broker: RabbitBroker, target: Target
) -> None:
    targets = fan_outs(broker, target, 120)
    with closing(broker.open(DEADLINE_S, {"channel_max": 110})) as publisher:
        outcomes = [publisher.publish([delivery(each)])[0] for each in targets]
    assert verdicts(outcomes) == [CONFIRMED] * 120
    assert broker.count(target) == 120


@pytest.mark.parametrize("most", [1, 2, 4])
def test_publish_to_more_exchanges_at_once_than_channels_confirms_each(
    broker: RabbitBroker, target: Target, most: int
) -> None:
    batch = [delivery(each) for each in fan_outs(broker, target, 12)] * 3
    batch.insert(5, delivery(broker.missing_target()))
    expected = [CONFIRMED] * len(batch)
    expected[5] = Verdict.TARGET_FAILED
    with closing(broker.open(DEADLINE_S, {"channel_max": most})) as publisher:
        for _ in range(2):
            assert verdicts(publisher.publish(batch)) == expected
            publisher.ping()
    assert broker.count(target) == 72


def test_publish_beside_a_busy_exchange_on_the_only_channel_is_confirmed_in_turn(
    broker: RabbitBroker, target: Target
) -> None:
    busy, other = fan_outs(broker, target, 2)
    is_over = threading.Event()

    def publish_on() -> set[Verdict]:
        found: set[Verdict] = set()
        while not is_over.is_set():
            found.update(verdicts(publisher.publish([delivery(busy) for _ in range(200)])))
        return found

    with closing(broker.open(DEADLINE_S, {"channel_max": 1})) as publisher:
        with ThreadPoolExecutor(3) as pool:
            runs = [pool.submit(publish_on) for _ in range(3)]
            try:
                for _ in range(10):
                    assert verdicts(publisher.publish([delivery(other)])) == [CONFIRMED]
                    publisher.ping()
            finally:
                is_over.set()
        assert [run.result() for run in runs] == [{CONFIRMED}] * 3


# Many, and other processes.


def test_publish_twenty_thousand_by_four_threads_loses_and_repeats_none(
    broker: RabbitBroker, publisher: RabbitPublisher, target: Target
) -> None:
    batches = [[delivery(target, b"x" * 200) for _ in range(500)] for _ in range(40)]
    with ThreadPoolExecutor(4) as pool:
        outcomes = [o for answers in pool.map(publisher.publish, batches) for o in answers]
    assert verdicts(outcomes) == [CONFIRMED] * 20_000
    assert sorted(ids(broker.read_all(target))) == sorted(d.id for batch in batches for d in batch)


def test_publish_after_fork_amid_a_publish_confirms_in_both_processes(
    broker: RabbitBroker, publisher: RabbitPublisher, target: Target
) -> None:
    assert verdicts(publisher.publish([delivery(target)])) == [CONFIRMED]
    with publisher._lock:  # as if another thread were publishing
        child = os.fork()
        if child == 0:
            signal.alarm(30)
            outcomes = publisher.publish([delivery(target)])
            publisher.close()
            os._exit(0 if verdicts(outcomes) == [CONFIRMED] else 1)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0
    assert verdicts(publisher.publish([delivery(target)])) == [CONFIRMED]
    assert broker.count(target) == 3


def test_close_after_use_leaves_no_thread(broker: RabbitBroker, target: Target) -> None:
    before = set(threading.enumerate())  # of which those of another test may end meanwhile
    publisher = broker.open(DEADLINE_S)
    assert set(threading.enumerate()) <= before
    assert verdicts(publisher.publish([delivery(target)])) == [CONFIRMED]
    publisher.close()
    assert set(threading.enumerate()) <= before


def test_publish_invalid_by_four_threads_rejects_those_alone_and_repeats_none(
    broker: RabbitBroker, publisher: RabbitPublisher, target: Target
) -> None:
    batches = [[delivery(target) for _ in range(50)] for _ in range(40)]
    for place, batch in enumerate(batches):
        batch[place] = delivery(target, properties=Properties(expiration="soon"))
    expected = [[n == place for n in range(50)] for place in range(40)]
    with ThreadPoolExecutor(4) as pool:
        answers = list(pool.map(publisher.publish, batches))
    assert [[o.verdict is Verdict.REJECTED for o in outcomes] for outcomes in answers] == expected
    assert sum(o.verdict is CONFIRMED for outcomes in answers for o in outcomes) == 40 * 49
    assert broker.count(target) == 40 * 49


@pytest.mark.parametrize(
    ("bad", "reason"),
    [  # the first six close the channel, AMQP cannot carry the others
        ({"properties": Properties(user_id="somebody-else")}, Reason.INVALID),
        ({"properties": Properties(reply_to="amq.rabbitmq.reply-to")}, Reason.INVALID),
        ({"properties": Properties(expiration="-1")}, Reason.INVALID),
        ({"properties": Properties(expiration=str(2**40))}, Reason.INVALID),
        ({"headers": (("CC", "elsewhere"),)}, Reason.INVALID),
        ({"headers": (("BCC", b"elsewhere"),)}, Reason.INVALID),
        ({"body": None}, Reason.INVALID),
        ({"body": "text"}, Reason.INVALID),
        ({"headers": (("text", "\ud800"),)}, Reason.INVALID),
        ({"properties": Properties(priority=256)}, Reason.INVALID),
        ({"headers": (("text", "x" * 200_000),)}, Reason.TOO_LARGE),
    ],
)
def test_publish_what_rabbitmq_refuses_among_good_rejects_it_alone(
    broker: RabbitBroker,
    publisher: RabbitPublisher,
    target: Target,
    bad: dict[str, Any],
    reason: Reason,
) -> None:
    good = [delivery(target) for _ in range(50)]
    outcomes = list(
        publisher.publish([*good[:25], *(delivery(target, **bad) for _ in "12"), *good[25:]])
    )
    assert [(o.verdict, o.reason) for o in outcomes[25:27]] == [(Verdict.REJECTED, reason)] * 2
    assert verdicts(outcomes[:25] + outcomes[27:]) == [CONFIRMED] * 50
    assert ids(broker.read_all(target)) == ids(good)


def test_publish_to_too_long_routing_key_is_rejected(
    publisher: RabbitPublisher, target: Target
) -> None:
    far = Target("rabbitmq", exchange=target.exchange, routing_key="k" * 256)
    outcomes = publisher.publish([delivery(far), delivery(target)])
    assert verdicts(outcomes) == [Verdict.REJECTED, CONFIRMED]


def test_publish_every_property_carries_each_to_the_byte(
    broker: RabbitBroker, publisher: RabbitPublisher, target: Target
) -> None:
    given = Properties(
        content_type='text/plain; charset="ü"',
        content_encoding="zstd",
        correlation_id="c" * 255,
        reply_to="answers",
        type="t",
        app_id="a",
        user_id="guest",
        expiration="86400000",
        priority=0,
        timestamp=2**40,
    )
    headers: Headers = (("x", b"\0\xff"), ("s", "ü\0"), ("i", 2**31), ("b", False), ("v", None))
    sent = delivery(target, bytes(range(256)), headers=headers, properties=given)
    assert verdicts(publisher.publish([sent])) == [CONFIRMED]
    ((properties, body),) = broker.read_raw(target)
    assert body == bytes(range(256))
    assert {name: getattr(properties, name) for name in Properties.__struct_fields__} == {
        name: getattr(given, name) for name in Properties.__struct_fields__
    }
    assert (properties.message_id, properties.delivery_mode) == (sent.id, 2)
    assert properties.headers == dict(sent.headers)
    types = {name: type(value) for name, value in properties.headers.items()}
    assert {name: types[name] for name in "xsbv"} == {
        "x": bytes,
        "s": str,
        "b": bool,
        "v": type(None),
    }
