"""A message that comes back with headers that pika's decoder raises on, on a real broker."""

from typing import Any

import pytest
from msgspec.msgpack import Ext

from duebridge.amqp_fields import field
from duebridge.envelope import Target
from duebridge.ports.publisher import Reason, Verdict
from duebridge_connectors.rabbitmq.publishing.publisher import RabbitPublisher
from tests.support.contract.broker_under_test import delivery, ids, verdicts
from tests.support.rabbitmq.rabbitmq_broker import RabbitBroker


def arrays(depth: int) -> Ext:
    """Return an array in an array, and so on."""
    payload = bytes(4)
    for _ in range(depth - 1):
        payload = (len(payload) + 1).to_bytes(4, "big") + b"A" + payload
    return field("A", payload)


UNREADABLE = {
    "milliseconds": field("T", (1764228000000).to_bytes(8, "big")),
    "latest": field("T", (2**64 - 1).to_bytes(8, "big")),
    "nested": arrays(1500),
}


def connection_of(publisher: RabbitPublisher) -> Any:
    return vars(vars(publisher)["_link"])["_connection"]


@pytest.mark.parametrize("others", [0, 400])
@pytest.mark.parametrize("name", UNREADABLE)
def test_publish_unroutable_with_a_header_that_pika_cannot_read_fails_it_alone(
    broker: RabbitBroker, publisher: RabbitPublisher, target: Target, name: str, others: int
) -> None:
    first = delivery(target)  # so that the others are pipelined
    assert verdicts(publisher.publish([first])) == [Verdict.CONFIRMED]
    connection = connection_of(publisher)
    good = [delivery(target) for _ in range(others)]
    nowhere = Target(target.broker, exchange=target.exchange, routing_key="nowhere")
    bad = delivery(nowhere, headers=(("raw", UNREADABLE[name]),))
    half = others // 2
    outcomes = publisher.publish([*good[:half], bad, *good[half:]])
    returned = outcomes[half]
    assert (returned.verdict, returned.reason) == (Verdict.TARGET_FAILED, Reason.UNROUTABLE)
    assert verdicts(outcomes).count(Verdict.CONFIRMED) == others
    assert connection_of(publisher) is connection
    assert ids(broker.read_all(target)) == ids([first, *good])
