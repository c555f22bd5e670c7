"""What the RabbitMQ examiner learns of queues, without changing one."""

import secrets
from collections.abc import Callable, Iterator
from typing import Any

import pika
import pytest

from duebridge.envelope import Target
from duebridge.ports.checks import Destination, Finding, Severity
from duebridge_connectors.rabbitmq.examine import examine
from duebridge_connectors.rabbitmq.queue_limits import read_limits

Declare = Callable[..., str]


@pytest.fixture
def declare(channel: Any) -> Iterator[Declare]:
    """Declare queues, which are deleted at the end; without a name the server gives one."""
    declared: list[str] = []

    def make(name: str | None = None, durable: bool = True, **arguments: object) -> str:
        name = f"examine-{secrets.token_hex(6)}" if name is None else name
        given = {key.replace("_", "-"): value for key, value in arguments.items()}
        declared.append(channel.queue_declare(name, durable=durable, arguments=given).method.queue)
        return declared[-1]

    yield make
    for name in declared:
        channel.queue_delete(name)


def examined(url: str, queue: str) -> Finding:
    target = Target("billing", exchange="", routing_key=queue)
    each = Destination("r", "routes.r.target", target, 1000)
    _, finding = examine("brokers.billing", {"type": "rabbitmq", "url": url}, [each], 5.0)
    return finding


@pytest.mark.parametrize(
    ("arguments", "limit"),
    [
        ({}, ""),
        ({"x_max_length": 5}, "x-max-length 5"),
        ({"x_max_length_bytes": 2**33}, f"x-max-length-bytes {2**33}"),
        ({"x_max_length": 5, "x_max_length_bytes": 6}, "x-max-length 5, x-max-length-bytes 6"),
        ({"x_max_length": 5, "x_overflow": "drop-head"}, "x-max-length 5"),
        ({"x_max_length": 5, "x_overflow": "reject-publish"}, ""),
        ({"x_max_length": 5, "x_queue_type": "quorum", "x_delivery_limit": 3}, "x-max-length 5"),
        ({"x_queue_type": "stream", "x_max_length_bytes": 10**8, "x_max_age": "1D"}, ""),
        (
            {
                "x_max_length": 5,
                "x_message_ttl": 60_000,
                "x_expires": 100_000,
                "x_dead_letter_exchange": "amq.direct",
                "x_dead_letter_routing_key": "12",
                "x_max_priority": 5,
                "x_single_active_consumer": True,
                "foo": "bar",
            },
            "x-max-length 5",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "-".join(value) or "plain",
)
def test_examine_queue_that_drops_its_oldest_fails_with_the_limit(
    rabbitmq_url: str, declare: Declare, arguments: dict[str, object], limit: str
) -> None:
    finding = examined(rabbitmq_url, declare(**arguments))
    if limit:
        assert finding.severity is Severity.FAILURE
        assert f"drops its oldest messages when it is full ({limit})" in finding.found
    else:
        assert finding.severity is Severity.OK
        assert "(not checked: policies, the permission to write)" in finding.found


def test_examine_queue_that_is_not_durable_warns(rabbitmq_url: str, declare: Declare) -> None:
    finding = examined(rabbitmq_url, declare(durable=False))
    assert finding.severity is Severity.WARNING
    assert "is not durable" in finding.found


def test_examine_queue_that_we_may_not_declare_says_what_is_not_checked(
    rabbitmq_url: str, declare: Declare
) -> None:
    name = declare("")
    assert name.startswith("amq.")  # a name that nobody may declare
    finding = examined(rabbitmq_url, name)
    assert finding.severity is Severity.OK
    assert "not checked: its arguments, policies, the permission to write" in finding.found


def test_read_limits_of_a_queue_that_never_was_creates_none(channel: Any) -> None:
    name = f"examine-{secrets.token_hex(6)}"
    assert read_limits(channel.connection, name) is None
    with pytest.raises(pika.exceptions.ChannelClosedByBroker, match="404"):
        channel.connection.channel().queue_declare(name, passive=True)


class Vanishing:
    """A connection on which a queue is deleted just before the given question."""

    def __init__(self, connection: Any, queue: str, question: int) -> None:
        self._connection = connection
        self._queue = queue
        self._left = question

    def channel(self) -> Any:
        self._left -= 1
        if not self._left:
            self._connection.channel().queue_delete(self._queue)
        return self._connection.channel()


@pytest.mark.parametrize("question", [1, 2, 3])
def test_read_limits_of_a_queue_that_vanishes_meanwhile_creates_none(
    channel: Any, declare: Declare, question: int
) -> None:
    name = declare(x_max_length=5, x_max_length_bytes=6, x_overflow="drop-head")
    assert read_limits(Vanishing(channel.connection, name, question), name) is None
    with pytest.raises(pika.exceptions.ChannelClosedByBroker, match="404"):
        channel.connection.channel().queue_declare(name, passive=True)


def test_examine_leaves_messages_and_arguments_alone(
    rabbitmq_url: str, channel: Any, declare: Declare
) -> None:
    name = declare(x_max_length=5)
    channel.confirm_delivery()
    channel.basic_publish("", name, b"kept")
    examined(rabbitmq_url, name)
    again = channel.queue_declare(name, durable=True, arguments={"x-max-length": 5})
    assert again.method.message_count == 1
