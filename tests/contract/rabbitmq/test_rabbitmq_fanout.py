"""One message to several queues: what a nack of one leaves, and what goes to no other queue."""

import secrets
from collections.abc import Iterator
from contextlib import closing
from struct import pack

import pytest
from msgspec.msgpack import Ext
from msgspec.structs import replace

from duebridge.amqp_fields import AMQP_FIELD
from duebridge.envelope import Target
from duebridge.ports.publisher import Outcome, Verdict
from duebridge.store.server.connection import open_connection
from tests.support.contract.broker_under_test import delivery, verdicts
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


def keys(*names: str) -> Ext:
    """Return routing keys as an intake takes them in: an array of long strings."""
    data = b"".join(pack(">cI", b"S", len(name)) + name.encode() for name in names)
    return Ext(AMQP_FIELD, pack(">cI", b"A", len(data)) + data)


@pytest.mark.parametrize("name", ["CC", "BCC"])
def test_publish_a_dead_letter_with_copies_sends_it_to_its_own_queue_alone(
    broker: RabbitBroker, name: str
) -> None:
    queue, other = broker.missing_target(), broker.missing_target()
    broker.create(other)
    assert other.exchange is not None
    to = Target("rabbitmq", exchange="", routing_key=queue.exchange)
    sent = delivery(to, headers=((name, keys(other.exchange)),))
    letter = replace(sent, is_dead_letter=True)
    with closing(broker.open(DEADLINE_S)) as publisher:
        assert verdicts(publisher.publish([letter])) == [Verdict.TARGET_FAILED]
        broker.create(queue)
        assert verdicts(publisher.publish([letter])) == [Verdict.CONFIRMED]
        assert broker.count(other) == 0
        assert verdicts(publisher.publish([sent])) == [Verdict.CONFIRMED]
    assert (broker.count(queue), broker.count(other)) == (2, 1)
    (found, _) = broker.read_raw(queue)[0]
    assert found.headers is not None
    assert found.headers[f"x-dlq-{name.lower()}"] == [other.exchange]
