"""RabbitMQ's queues and streams pass the contract of sources, and outlive a broker that dies."""

from collections.abc import Iterator
from contextlib import ExitStack, closing
from functools import partial
from typing import NamedTuple

import pika
import pytest
from pika.exceptions import ChannelClosedByBroker

from duebridge.ports.publisher import BrokerUnavailable
from duebridge.ports.source import Source
from tests.contract.sources import QueueContract, SourceContract
from tests.support.contract.source_under_test import (
    SourceUnderTest,
    bodies,
    numbered,
    raises_soon,
    received,
    settled,
)
from tests.support.rabbitmq.own_rabbitmq import PrivateRabbit
from tests.support.rabbitmq.rabbitmq_queues import RabbitQueues
from tests.support.servers import wait_until


class TestClassicQueue(QueueContract):
    @pytest.fixture
    def broker(self, rabbitmq_url: str) -> Iterator[RabbitQueues]:
        with closing(RabbitQueues(rabbitmq_url)) as broker:
            yield broker


class TestQuorumQueue(SourceContract):
    @pytest.fixture
    def broker(self, rabbitmq_url: str) -> Iterator[RabbitQueues]:
        with closing(RabbitQueues(rabbitmq_url, "quorum")) as broker:
            yield broker


class TestStream(QueueContract):
    @pytest.fixture
    def broker(self, rabbitmq_url: str) -> Iterator[RabbitQueues]:
        with closing(RabbitQueues(rabbitmq_url, "stream")) as broker:
            yield broker

    def test_lag_becomes_the_number_of_messages_that_wait(
        self, broker: SourceUnderTest, name: str
    ) -> None:
        """A stream keeps what was read: its length is no lag."""
        broker.send(name, [b"one"])
        with closing(broker.open(name)) as source:
            settled(source, 1)
            assert source.lag() is None


class Interrupted(NamedTuple):
    """A source that has settled its first messages, and has others in hand."""

    queues: RabbitQueues
    source: Source
    settled: list[bytes | None]


def interrupted(rabbit: PrivateRabbit, kind: str, name: str, stack: ExitStack) -> Interrupted:
    queues = RabbitQueues(rabbit.url, kind)
    stack.callback(queues.abandon)
    queues.send(name, numbered(20))
    source = stack.enter_context(closing(queues.open(name, batch=10)))
    first = settled(source, 10)
    received(source)
    return Interrupted(queues, source, bodies(first))


@pytest.mark.long
def test_receive_after_the_broker_was_killed_goes_on(rabbit: PrivateRabbit) -> None:
    names = {kind: declared(rabbit, kind) for kind in ("classic", "quorum", "stream")}
    rabbit.control("stop_app")  # else RabbitMQ 3.10 has forgotten a Raft log as young as that
    rabbit.control("start_app")
    for name in names.values():
        wait_until(partial(is_up, rabbit.url, name), "the queue to be up again")
    with ExitStack() as stack:
        every = [interrupted(rabbit, kind, name, stack) for kind, name in names.items()]
        rabbit.kill()
        for each in every:
            raises_soon(each.source, BrokerUnavailable)
        rabbit.start()
        for each in every:
            before = each.settled
            rest: list[bytes | None] = []
            while set(rest) < set(numbered(20)[len(before) :]):
                rest += bodies(settled(each.source, 1, within_s=60))
            assert before == numbered(20)[: len(before)], each.queues.kind


def declared(rabbit: PrivateRabbit, kind: str) -> str:
    queues = RabbitQueues(rabbit.url, kind)
    name = queues.create()
    queues.abandon()
    return name


def is_up(url: str, name: str) -> bool:
    with closing(pika.BlockingConnection(pika.URLParameters(url))) as connection:
        try:
            connection.channel().queue_declare(name, passive=True)
        except ChannelClosedByBroker:
            return False
    return True
