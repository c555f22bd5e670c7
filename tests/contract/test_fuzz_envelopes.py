"""Any envelope is refused in words, or stored and delivered byte for byte, by real brokers too."""

import re
import secrets
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from duebridge.admin.operator import Operator
from duebridge.config.models import Config
from duebridge.envelope import Envelope, Headers, HeaderValue, Properties, Target
from duebridge.errors import EnvelopeError
from duebridge.ports.publisher import Delivery, Publisher, Reason
from duebridge.producer import Producer
from duebridge.receipt import EnvelopeDetails, Receipt
from duebridge.store.server.connection import Connection
from duebridge_connectors.kafka.headers import plain_headers
from tests.support.contract.broker_under_test import Received
from tests.support.kafka.kafka_broker import KafkaBroker
from tests.support.model.drawn_envelopes import BATCH, Batch, Fields, batches, brief
from tests.support.model.fuzzing import Lookout, embedded, fuzz, fuzz_config
from tests.support.rabbitmq.rabbitmq_broker import RabbitBroker

OURS = {"x-message-id", "x-route", "x-attempt", "x-due-at", "x-scheduled-at"}
ROUTES: dict[str, Any] = {
    "r": {
        "target": {"broker": "memory", "topic": "t"},
        "allow_targets": [{"broker": "memory", "topic": "t-*"}],
    },
    "k": {"target": {"broker": "kafka", "topic": "t"}},
    "q": {"target": {"broker": "rabbitmq", "exchange": "e", "routing_key": "k"}},
}
GATHERED_MS = 10  # what is due may be kept back so long for what is due next
SETTLED_MS = 1000
REFUSAL = re.compile(r": .*(expected .+|did you mean)", re.DOTALL)
Content = tuple[Any, ...]


@pytest.fixture(scope="module")
def store_url(tmp_path_factory: pytest.TempPathFactory) -> str:
    return f"embedded:{tmp_path_factory.mktemp('fuzz')}"


@pytest.fixture(scope="module")
def connection(store_url: str) -> Iterator[Connection]:
    with embedded(store_url) as connection:
        yield connection


@pytest.fixture(scope="module")
def config() -> Config:
    return fuzz_config("envelopes", ROUTES)


@pytest.fixture(scope="module")
def producer(config: Config, connection: Connection) -> Producer:
    return Producer(config, connection)


def built(batch: Sequence[Fields]) -> list[tuple[Fields, Envelope]]:
    """What `Envelope.new` takes of a batch, beside what was given."""
    taken = []
    for fields in batch:
        rest = {name: value for name, value in fields.items() if name not in {"body", "soon_s"}}
        if "soon_s" in fields:
            rest.setdefault("at", datetime.now(UTC) + timedelta(seconds=fields["soon_s"]))
        try:
            taken.append((fields, Envelope.new(fields["body"], **rest)))
        except EnvelopeError as error:
            check_refusal(error, fields)

    return taken


def check_refusal(error: EnvelopeError, fields: Fields) -> None:
    """It says what was expected, and where."""
    assert REFUSAL.search(str(error)), brief(fields)


def as_bytes(given: Any) -> bytes | None:
    """Text goes as UTF-8."""
    if given is None:
        return None
    return given.encode() if isinstance(given, str) else bytes(given)


def given_content(fields: Fields) -> Content:
    """What is to arrive, by the fields as they were given."""
    headers = fields.get("headers") or ()
    pairs = headers.items() if isinstance(headers, dict) else headers
    properties = {name: fields[name] for name in Properties.__struct_fields__ if name in fields}
    return (
        as_bytes(fields["body"]),
        as_bytes(fields.get("key")),
        [(str(name), plain(value)) for name, value in pairs],
        Properties(**properties),
        fields.get("target"),
    )


def plain(value: HeaderValue) -> str:
    """A header's value and its type, a subclass as what it is one of."""
    kind = next(each for each in (bool, int, bytes, str, type(None)) if isinstance(value, each))
    return f"{kind.__name__} {value!r}" if kind is not int else f"int {int(value or 0)}"


def shown_content(shown: EnvelopeDetails) -> Content:
    headers = [(name, plain(value)) for name, value in shown.headers]
    return shown.body, shown.key, headers, shown.properties, shown.target


def delivered_content(delivery: Delivery, target: object) -> Content:
    headers = [(name, plain(value)) for name, value in delivery.headers if name not in OURS]
    properties = delivery.properties or Properties()
    return delivery.body, delivery.key, headers, properties, target and delivery.target


@fuzz(0.6, of_each=BATCH)
@given(batch=batches, route=st.sampled_from(sorted(ROUTES)))
def test_envelope_is_refused_or_stored_and_delivered_byte_for_byte(
    batch: Batch, route: str, config: Config, producer: Producer, connection: Connection
) -> None:
    taken = built(batch)
    before_ms = time.time_ns() // 1_000_000
    receipts = producer.schedule_many(route, [envelope for _, envelope in taken])
    accepted: dict[str, Receipt] = {}
    wanted: dict[str, Content] = {}
    for (fields, envelope), receipt in zip(taken, receipts, strict=True):
        assert receipt.status in {"accepted", "duplicate", "conflict", "refused"}
        if receipt.status == "refused":
            assert REFUSAL.search(receipt.error), receipt.error
        elif receipt.status == "accepted":
            accepted[envelope.id], wanted[envelope.id] = receipt, given_content(fields)
            check_due(envelope, receipt, before_ms)
    operator = Operator(config, connection)
    for each in accepted:
        shown = operator.show(route, each)
        assert shown is not None
        assert shown_content(shown) == wanted[each]
    deliver(route, Lookout(connection, config, before_ms), accepted, wanted)
    connection.client.flushdb()


def check_due(envelope: Envelope, receipt: Receipt, before_ms: int) -> None:
    """Due when it was asked for, by the store's clock; what is over is due now."""
    after_ms = time.time_ns() // 1_000_000 + 1
    wanted_ms = envelope.due.ms
    if envelope.due.relative:
        assert before_ms + wanted_ms <= receipt.due_at_ms <= after_ms + wanted_ms
    else:
        assert max(before_ms, wanted_ms) <= receipt.due_at_ms <= max(after_ms, wanted_ms)


def deliver(
    route: str, floor: Lookout, accepted: dict[str, Receipt], wanted: dict[str, Content]
) -> None:
    """Go from due instant to due instant: nothing early, nothing lost, each as it was given."""
    for due_at_ms in sorted({receipt.due_at_ms for receipt in accepted.values()}):
        floor.turn_at(due_at_ms)
        floor.turn(GATHERED_MS)
        arrived = [accepted[each.id] for each in floor.publisher.delivered]
        assert all(each.due_at_ms <= floor.now_ms() for each in arrived)
    floor.turn(SETTLED_MS)
    found = {each.id: each for each in floor.publisher.delivered}
    assert len(found) == len(floor.publisher.delivered)
    for each in accepted:
        entry = floor.stores[route].get(each)
        if each in found:
            assert delivered_content(found[each], wanted[each][-1]) == wanted[each]
            assert entry is None
        else:
            assert entry is not None
            assert entry.flight.reason == Reason.EXPIRED
            assert entry.record is not None
            assert entry.record.expires_at_ms - entry.record.due_at_ms <= GATHERED_MS


DEADLINE_S = 15.0
DAY_MS = 86_400_000
MAY_NEVER_GO = {Reason.EXPIRED, Reason.INVALID}

Form = Callable[[Envelope | Received], tuple[Any, ...]]


def kafka_form(each: Envelope | Received) -> tuple[Any, ...]:
    """An envelope, or what arrived of it, as an independent consumer of Kafka reads it."""
    return each.body, each.key, plain_headers(_theirs(each), each.properties)


def rabbitmq_form(each: Envelope | Received) -> tuple[Any, ...]:
    """As an independent consumer of RabbitMQ reads it: headers in any order."""
    headers = sorted(f"{name!r} {plain(value)}" for name, value in _theirs(each))
    return each.body, headers, each.properties


def _theirs(each: Envelope | Received) -> Headers:
    return tuple(pair for pair in each.headers if pair[0] not in OURS)


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

    def check(self, found: Sequence[Received], form: Form) -> None:
        """Nothing is lost, nothing is other than it was."""
        arrived = {each.id: each for each in found}
        for name, envelope in self.accepted.items():
            if name in arrived:
                assert form(arrived[name]) == form(envelope)
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
    @given(batch=batches)
    def send(batch: Batch) -> None:
        sample.send(batch)

    send()
    assert sample.accepted


@pytest.fixture(params=["kafka", "rabbitmq"])
def case(
    request: pytest.FixtureRequest, service: Callable[[str, str], str]
) -> Iterator[tuple[Any, Target, Form]]:
    """Return a real broker, a new target, and how to compare what arrives there."""
    topic = f"fuzz-{secrets.token_hex(6)}"
    if request.param == "kafka":
        with closing(KafkaBroker(service("kafka", "bootstrap"))) as broker:
            yield broker, Target("kafka", topic=topic), kafka_form
    else:
        with closing(RabbitBroker(service("rabbitmq", "url"))) as rabbit:
            target = Target("rabbitmq", exchange=topic, routing_key="due")
            yield rabbit, target, rabbitmq_form


def test_envelopes_arrive_on_a_real_broker_as_they_were_given(
    connection: Connection, case: tuple[Any, Target, Form]
) -> None:
    broker, target, form = case
    broker.create(target)
    with closing(broker.open(DEADLINE_S)) as publisher:
        sample = Sample(connection, target.as_dict(), publisher)
        draw_into(sample)
    sample.check(broker.read_all(target), form)
