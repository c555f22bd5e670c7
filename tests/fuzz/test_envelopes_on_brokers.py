"""A sample of the same envelopes on real brokers: what these have is what was accepted."""

import secrets
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from typing import Any

import msgspec
from hypothesis import given

import duebridge_connectors.kafka  # noqa: F401 - before any test imports kafka, whose import warns
from duebridge.envelope import Envelope, HeaderValue, Target
from duebridge.ports.publisher import Publisher, Reason
from duebridge.producer import Producer
from duebridge.store.connection import Connection
from duebridge_connectors.kafka.headers import plain_headers
from tests.contract.broker_under_test import Received
from tests.contract.kafka_broker import KafkaBroker
from tests.contract.rabbitmq_broker import RabbitBroker
from tests.fuzz.budget import fuzz
from tests.fuzz.envelopes import BATCH, Batch, batches
from tests.fuzz.lookout import Lookout, fuzz_config
from tests.fuzz.test_envelopes import OURS, SETTLED_MS, built, plain

DEADLINE_S = 15.0
DAY_MS = 86_400_000
MAY_NEVER_GO = {Reason.EXPIRED, Reason.INVALID}

Form = Callable[[Envelope], tuple[Any, ...]]


def kafka_form(envelope: Envelope) -> tuple[Any, ...]:
    """An envelope as an independent consumer of Kafka reads it."""
    return envelope.body, envelope.key, plain_headers(envelope.headers, envelope.properties)


def rabbitmq_form(envelope: Envelope) -> tuple[Any, ...]:
    """An envelope as an independent consumer of RabbitMQ reads it: headers in any order."""
    return envelope.body, sorted_headers(envelope.headers), envelope.properties


def sorted_headers(headers: Sequence[tuple[str, HeaderValue]]) -> list[str]:
    return sorted(f"{name!r} {plain(value)}" for name, value in headers)


def kafka_read(received: Received) -> tuple[Any, ...]:
    headers = [pair for pair in received.headers if pair[0] not in OURS]
    return received.body, received.key, headers


def rabbitmq_read(received: Received) -> tuple[Any, ...]:
    headers = [pair for pair in received.headers if pair[0] not in OURS]
    return received.body, sorted_headers(headers), received.properties


class Sample:
    """What was accepted of a route, and what became of it on the way to a real broker."""

    def __init__(self, connection: Connection, target: dict[str, str], publisher: Publisher):
        self.config = fuzz_config(f"sample-{secrets.token_hex(4)}", {"r": {"target": target}})
        self.producer = Producer(self.config, connection)
        self.accepted: dict[str, Envelope] = {}
        self._connection = connection
        self._publisher = publisher

    def send(self, batch: Batch) -> None:
        """Schedule a batch, and let a worker deliver all of it."""
        taken = [one for fields, one in built(batch) if may_be_read_back(fields)]
        before_ms = time.time_ns() // 1_000_000
        receipts = self.producer.schedule_many("r", taken)
        pairs = zip(taken, receipts, strict=True)
        self.accepted |= {one.id: one for one, receipt in pairs if receipt.status == "accepted"}
        floor = Lookout(self._connection, self.config, before_ms, self._publisher)
        for due_at_ms in sorted({receipt.due_at_ms for receipt in receipts if not receipt.error}):
            floor.turn_at(due_at_ms)
        for _ in range(9):  # what was beside a refused one is tried again
            floor.turn(SETTLED_MS)
        assert floor.stores["r"].next().envelopes == floor.stores["r"].next().dead

    def check(self, found: Sequence[Received], form: Form, read: Any) -> None:
        """Nothing is lost, nothing is other than it was."""
        arrived = {each.id: each for each in found}
        for name, envelope in self.accepted.items():
            if name in arrived:
                assert read(arrived[name]) == form(envelope)
            else:
                known = self.producer.get("r", name)
                assert known is not None, envelope
                assert known.state == "dead"
                assert known.reason in {reason.word for reason in MAY_NEVER_GO}
        assert arrived.keys() <= self.accepted.keys()


def may_be_read_back(fields: dict[str, Any]) -> bool:
    """RabbitMQ itself drops what expires in a queue."""
    return fields.get("expiration") in (None, "3600000")


def draw_into(sample: Sample) -> None:
    @fuzz(0.1, of_each=BATCH)
    @given(batch=batches())
    def send(batch: Batch) -> None:
        sample.send(batch)

    send()
    assert sample.accepted


def test_envelopes_arrive_on_kafka_as_they_were_given(
    connection: Connection, kafka_bootstrap: str
) -> None:
    with closing(KafkaBroker(kafka_bootstrap)) as broker:
        target = Target("kafka", topic=f"fuzz-{secrets.token_hex(6)}")
        broker.create(target)
        with closing(broker.open(DEADLINE_S)) as publisher:
            sample = Sample(connection, msgspec.to_builtins(target), publisher)
            draw_into(sample)
        sample.check(broker.read_all(target), kafka_form, kafka_read)


def test_envelopes_arrive_on_rabbitmq_as_they_were_given(
    connection: Connection, rabbitmq_url: str
) -> None:
    with closing(RabbitBroker(rabbitmq_url)) as broker:
        target = Target("rabbitmq", exchange=f"fuzz-{secrets.token_hex(6)}", routing_key="due")
        broker.create(target)
        with closing(broker.open(DEADLINE_S)) as publisher:
            sample = Sample(connection, msgspec.to_builtins(target), publisher)
            draw_into(sample)
        sample.check(broker.read_all(target), rabbitmq_form, rabbitmq_read)
