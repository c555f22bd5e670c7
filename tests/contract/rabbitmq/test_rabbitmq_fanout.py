"""A nack by one of two queues leaves the envelope unsure: the other queue has it."""

import secrets
from collections.abc import Iterator
from contextlib import closing

import pytest

from duebridge.envelope import Target
from duebridge.ports.publisher import Outcome, Verdict
from duebridge.store.server.connection import open_connection
from tests.support.contract.broker_under_test import delivery
from tests.support.desk import Desk, retrying
from tests.support.rabbitmq.rabbitmq_broker import RabbitBroker

DEADLINE_S = 15.0


@pytest.fixture
def nacked(rabbitmq_url: str) -> Iterator[Outcome]:
    """Publish to two queues, one of them full; check that the other one has the message."""
    with closing(RabbitBroker(rabbitmq_url)) as broker:
        free, full = broker.missing_target(), broker.missing_target()
        broker.create(free)
        broker.create(full, **{"x-max-length": 1, "x-overflow": "reject-publish"})
        fanout = Target("rabbitmq", exchange=f"fanout-{secrets.token_hex(6)}", routing_key="")
        broker.channel.exchange_declare(fanout.exchange, "fanout", auto_delete=True)
        for each in (free, full):
            broker.channel.queue_bind(each.exchange, fanout.exchange)
        with closing(broker.open(DEADLINE_S)) as publisher:
            assert publisher.publish([delivery(full)])[0].verdict is Verdict.CONFIRMED
            (outcome,) = publisher.publish([delivery(fanout)])
        assert (broker.count(free), broker.count(full)) == (1, 1)
        yield outcome


def test_publish_to_a_fanout_with_a_full_queue_fails_and_is_unsure(nacked: Outcome) -> None:
    assert nacked.verdict is Verdict.FAILED
    assert nacked.may_be_published
    assert "it is full, with overflow reject-publish" in nacked.error_message


def test_cancel_after_a_nack_is_never_certain(nacked: Outcome, redis_url: str) -> None:
    with closing(open_connection(redis_url)) as connection:
        desk = Desk(connection, f"nack-{secrets.token_hex(6)}")
        claim = desk.unack("a")
        put_back = retrying("a", unsure=nacked.may_be_published, error=nacked.error)
        assert desk.store.retry(claim.token, [put_back]).stale == []
        assert desk.store.cancel("a") == "in_flight"
        assert desk.state_of("a") is None  # it is removed all the same
        desk.check()
