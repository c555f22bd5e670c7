"""What an intake declares on RabbitMQ, and what its check says."""

from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pika
import pytest

from duebridge.admin.checks.broker_checks import examine_brokers
from duebridge.config.models import Config
from duebridge.envelope import Target
from duebridge.errors import ConfigError
from duebridge.ports.checks import Finding, Severity
from duebridge.ports.publisher import BrokerUnavailable
from duebridge_connectors.rabbitmq.broker import RABBITMQ
from duebridge_connectors.rabbitmq.queue_limits import read_delivery_limit
from duebridge_connectors.rabbitmq.source.examining import delivery_dangers
from tests.contract.rabbitmq.declaring import Names, examined, failures
from tests.support.contract.source_under_test import Memory, gathered, is_quiet
from tests.support.servers import free_port, wait_until


@pytest.fixture
def names(channel: Any) -> Iterator[Names]:
    names = Names()
    yield names
    names.delete(channel)


def warnings(found: list[Finding]) -> list[str]:
    return [each.found for each in found if each.severity is Severity.WARNING]


def test_declare_sends_what_is_delayed_to_the_intake_and_the_rest_on(
    rabbitmq_url: str, channel: Any, names: Names
) -> None:
    plan = names.plan()
    lines = RABBITMQ.declare_source({"url": rabbitmq_url}, plan)
    assert len(lines) == 5
    consumer = channel.queue_declare("", exclusive=True).method.queue
    channel.queue_bind(consumer, f"{names.exchange}.due", "invoice.due")
    channel.confirm_delivery()
    delayed = ({"x-delay": 5000}, {"x-deliver-at": "2030-01-01T00:00:00Z"}, {"x-cancel": ""})
    for headers in (*delayed, {"a": "b"}, {"X-Delay": 5000}, None):  # it matches names as spelt
        properties = pika.BasicProperties(headers=headers)
        channel.basic_publish(names.exchange, "invoice.due", repr(headers).encode(), properties)
    with closing(RABBITMQ.open_source({"url": rabbitmq_url}, plan, Memory())) as source:
        first = gathered(source, 3)
        assert first[0].onward == Target(
            "billing", exchange=f"{names.exchange}.due", routing_key="invoice.due"
        )
        assert [each.headers[0][0] for each in first] == ["x-delay", "x-deliver-at", "x-cancel"]
        source.settle(first)
        assert is_quiet(source)
    at_once = [channel.basic_get(consumer, auto_ack=True)[2] for _ in range(3)]
    assert at_once == [b"{'a': 'b'}", b"{'X-Delay': 5000}", b"None"]


@pytest.mark.parametrize("kind", ["direct", "topic", "fanout", "headers"])
def test_declare_twice_changes_nothing(rabbitmq_url: str, names: Names, kind: str) -> None:
    first = RABBITMQ.declare_source({"url": rabbitmq_url}, names.plan(kind))
    second = RABBITMQ.declare_source({"url": rabbitmq_url}, names.plan(kind))
    assert len(second) == len(first)
    assert [line for line in second if "made" in line] == []
    assert failures(examined(rabbitmq_url, names.plan(kind))) == []


def test_declare_beside_a_queue_that_is_there_keeps_it(
    rabbitmq_url: str, channel: Any, names: Names
) -> None:
    channel.queue_declare(names.queue, durable=True, arguments={"x-max-priority": 3})
    lines = RABBITMQ.declare_source({"url": rabbitmq_url}, names.plan())
    assert f"queue {names.queue!r}: was there" in lines


def test_declare_an_exchange_that_is_there_and_differs_names_it(
    rabbitmq_url: str, channel: Any, names: Names
) -> None:
    channel.exchange_declare(names.exchange, "direct", durable=True)
    with pytest.raises(ConfigError, match=f"exchange '{names.exchange}': it is there and differs"):
        RABBITMQ.declare_source({"url": rabbitmq_url}, names.plan())
    (found,) = failures(examined(rabbitmq_url, names.plan(declare=None)))
    assert names.queue in found
    found = failures(examined(rabbitmq_url, names.plan()))[-1]
    assert f"exchange {names.exchange!r} differs" in found


def test_declare_at_an_absent_broker_raises_broker_unavailable(names: Names) -> None:
    with pytest.raises(BrokerUnavailable):
        RABBITMQ.declare_source({"url": f"amqp://127.0.0.1:{free_port()}/"}, names.plan())


def test_examine_what_is_missing_names_each_thing(rabbitmq_url: str, names: Names) -> None:
    found = failures(examined(rabbitmq_url, names.plan()))
    assert found == [
        f"queue {names.queue!r} does not exist",
        f"exchange '{names.exchange}.due' does not exist",
        f"exchange {names.exchange!r} does not exist",
    ]


def test_examine_what_an_intake_declares_advises_that_and_says_it_once(
    rabbitmq_url: str, names: Names
) -> None:
    letters = {"broker": "billing", "exchange": "", "routing_key": names.letters}
    target = {"broker": "billing", "exchange": f"{names.exchange}.due", "routing_key": "mail"}
    other = {"broker": "billing", "exchange": f"{names.exchange}.other", "routing_key": "mail"}
    config = Config.model_validate(
        {
            "version": 1,
            "brokers": {"billing": {"type": "rabbitmq", "url": rabbitmq_url}},
            "routes": {"r": {"target": target, "dead_letter": letters}, "s": {"target": other}},
            "intakes": {
                "from-plugin": {
                    "source": {"broker": "billing", "queue": names.queue},
                    "declare": {"exchange": names.exchange},
                    "route": "r",
                }
            },
        }
    )
    found = [each for each in examine_brokers(config) if each.severity is Severity.FAILURE]
    places = [(each.found.split()[1].strip("'"), each.place) for each in found]
    assert places == [
        (f"{names.exchange}.due", "routes.r.target"),
        (names.letters, "routes.r.dead_letter"),
        (f"{names.exchange}.other", "routes.s.target"),
        (names.queue, "intakes.from-plugin.source"),
        (names.exchange, "intakes.from-plugin.source"),
    ]
    advised = ["`duebridge intake declare from-plugin`" in each.remedy for each in found]
    assert advised == [True, True, False, True, True]


def test_examine_takes_no_message(rabbitmq_url: str, channel: Any, names: Names) -> None:
    plan = names.plan()
    RABBITMQ.declare_source({"url": rabbitmq_url}, plan)
    channel.basic_publish("", names.queue, b"body")
    examined(rabbitmq_url, plan)
    method, _, _ = channel.basic_get(names.queue)
    assert not method.redelivered


def test_examine_a_queue_that_drops_its_oldest_warns(
    rabbitmq_url: str, channel: Any, names: Names
) -> None:
    channel.queue_declare(names.queue, durable=True, arguments={"x-max-length": 10})
    (found,) = warnings(examined(rabbitmq_url, names.plan(declare=None)))
    assert "x-max-length 10" in found


def test_declare_makes_queues_that_drop_nothing_however_often_it_is_delivered(
    rabbitmq_url: str, channel: Any, names: Names
) -> None:
    RABBITMQ.declare_source({"url": rabbitmq_url}, names.plan())
    for queue in (names.queue, names.letters):
        assert read_delivery_limit(channel.connection, queue) == "1000000000"
    assert warnings(examined(rabbitmq_url, names.plan())) == []


@pytest.mark.parametrize("exchange", ["", "amq.direct"])
def test_message_that_expires_in_the_declared_queue_is_a_dead_letter(
    rabbitmq_url: str, channel: Any, names: Names, exchange: str
) -> None:
    letter = Target("billing", exchange=exchange, routing_key=names.letters)
    RABBITMQ.declare_source({"url": rabbitmq_url}, names.plan(dead_letter=letter))
    if exchange:
        channel.queue_declare(names.letters, durable=True)
        channel.queue_bind(names.letters, exchange, names.letters)
    channel.confirm_delivery()
    properties = pika.BasicProperties(message_id="m", expiration="1", headers={"x-delay": 5000})
    channel.basic_publish(names.exchange, "invoice.due", b"body", properties)

    found: list[Any] = []

    def comes() -> bool:
        found[:] = channel.basic_get(names.letters, auto_ack=True)
        return found[0] is not None

    wait_until(comes, "the expired message")
    _, properties, body = found
    assert (body, properties.message_id, properties.expiration) == (b"body", "m", None)
    assert (properties.headers["x-delay"], properties.headers["x-death"][0]["reason"]) == (
        5000,
        "expired",
    )


@pytest.mark.parametrize("target", ["queue", "exchange"])
def test_declare_with_dead_letters_that_come_back_keeps_the_expired_ones_out(
    rabbitmq_url: str, channel: Any, names: Names, target: str
) -> None:
    letter = {
        "queue": Target("billing", exchange="", routing_key=names.queue),
        "exchange": Target("billing", exchange=names.exchange, routing_key="k"),
    }[target]
    plan = names.plan(dead_letter=letter)
    RABBITMQ.declare_source({"url": rabbitmq_url}, plan)
    quorum = {"x-queue-type": "quorum", "x-delivery-limit": 1_000_000_000}
    channel.queue_declare(names.queue, durable=True, arguments=quorum)  # the very same arguments
    assert warnings(examined(rabbitmq_url, plan)) == ["the intake's dead letters come back to it"]


@pytest.mark.parametrize(
    ("arguments", "limit"),
    [
        ({"x-queue-type": "quorum"}, ""),
        ({"x-queue-type": "quorum", "x-delivery-limit": 20}, "20"),
        (
            {"x-queue-type": "quorum", "x-delivery-limit": 20, "x-max-length": 5}
            | {"x-overflow": "reject-publish", "x-dead-letter-exchange": "e"},
            "20",
        ),
        ({"x-queue-type": "stream"}, None),
        ({}, None),
    ],
)
def test_examine_a_queue_with_a_delivery_limit_warns_and_declare_leaves_it(
    rabbitmq_url: str,
    channel: Any,
    names: Names,
    arguments: dict[str, object],
    limit: str | None,
) -> None:
    channel.queue_declare(names.queue, durable=True, arguments=arguments)
    assert f"queue {names.queue!r}: was there" in RABBITMQ.declare_source(
        {"url": rabbitmq_url}, names.plan()
    )
    assert read_delivery_limit(channel.connection, names.queue) == limit
    found = warnings(examined(rabbitmq_url, names.plan(declare=None)))
    assert len(found) == bool(limit)
    assert all("drops a message after 20 deliveries" in each for each in found)


def test_read_delivery_limit_of_no_queue_creates_none(channel: Any, names: Names) -> None:
    assert read_delivery_limit(channel.connection, names.queue) is None
    with pytest.raises(pika.exceptions.ChannelClosedByBroker, match="404"):
        channel.connection.channel().queue_declare(names.queue, passive=True)


@pytest.mark.parametrize(
    ("limit", "version", "count"),
    [
        ("", "3.13.7", 0),
        ("", "4.0.2", 1),
        ("", "10.0.0", 1),
        ("20", "3.13.7", 1),
        ("0", "4.1.0", 1),
        ("-1", "4.1.0", 0),
        ("1000000000", "4.1.0", 0),
        (None, "4.1.0", 0),
    ],
)
def test_delivery_limit_that_may_be_reached_is_a_danger(
    limit: str | None, version: str, count: int
) -> None:
    assert len(list(delivery_dangers("intakes.i.source", "q", limit, version))) == count


def test_targets_of_an_intake_are_queues_and_the_exchange_of_what_is_due() -> None:
    assert RABBITMQ.named_target("b", "q") == Target("b", exchange="", routing_key="q")
    due = RABBITMQ.due_target("b", {"exchange": "delayed"})
    assert due == Target("b", exchange="delayed.due", routing_key="*")
