"""The producer's API against a real store."""

import secrets
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from duebridge.config.models import Config
from duebridge.envelope import Envelope, Target
from duebridge.errors import ConfigError, EnvelopeError, StoreUnfit
from duebridge.producer import Producer
from duebridge.store.connection import Connection, open_connection


@pytest.fixture
def build(embedded: Path) -> Iterator[Callable[..., Producer]]:
    made: list[Producer] = []

    def build_producer(broker_type: str = "memory", **route: Any) -> Producer:
        target = {"broker": "b", "topic": "t"}
        if broker_type == "rabbitmq":
            target = {"broker": "b", "exchange": "", "routing_key": "q"}
        brokers = {
            "memory": {"type": "memory"},
            "kafka": {"type": "kafka", "bootstrap_servers": ["localhost:9092"]},
            "rabbitmq": {"type": "rabbitmq", "url": "amqp://localhost/"},
        }
        config = Config.model_validate(
            {
                "version": 1,
                "store": {"url": f"embedded:{embedded}", "namespace": f"p-{secrets.token_hex(6)}"},
                "brokers": {"b": brokers[broker_type]},
                "routes": {"r": {"target": target, **route}},
            }
        )
        made.append(Producer(config, open_connection(config.store.url)))
        return made[-1]

    yield build_producer
    for producer in made:
        producer.close()


@pytest.fixture
def producer(build: Callable[..., Producer]) -> Producer:
    return build()


def test_schedule_returns_the_due_instant_of_the_store(producer: Producer) -> None:
    before = datetime.now(UTC)
    receipt = producer.schedule("r", b"x", delay="15m", id="a")
    due = datetime.fromtimestamp(receipt.due_at_ms / 1000, UTC)
    assert (receipt.id, receipt.route, receipt.status) == ("a", "r", "accepted")
    assert timedelta(minutes=15) <= due - before < timedelta(minutes=15, seconds=5)


def test_schedule_other_content_conflicts_or_replaces(producer: Producer) -> None:
    producer.schedule("r", b"x", delay="15m", id="a")
    assert producer.schedule("r", b"y", delay="15m", id="a").status == "conflict"
    assert (
        producer.schedule("r", b"y", delay="1h", id="a", on_conflict="replace").status == "replaced"
    )


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"delay": "366d"}, "due: expected within max_delay (365d) of now"),
        ({"at": datetime.now(UTC) + timedelta(days=400)}, "due: expected within max_delay (365d)"),
        ({"delay": "2h", "expires": "1h"}, "expires: expected an instant after"),
        ({"delay": "1s", "headers": {"x-attempt": "1"}}, "that duebridge does not set"),
        ({"delay": "1s", "headers": {f"h{i}": "v" for i in range(65)}}, "at most 64; got 65"),
        ({"delay": "1s", "headers": {"h": "v" * 40_000}}, "at most 32768 bytes; got 40001"),
        (
            {"delay": "1s", "target": Target("b", topic="else")},
            "that allow_targets of route 'r' permits",
        ),
    ],
)
def test_schedule_refused_says_why_and_stores_nothing(
    producer: Producer, fields: dict[str, Any], message: str
) -> None:
    with pytest.raises(EnvelopeError) as refusal:
        producer.schedule("r", b"x", id="a", **fields)
    assert message in str(refusal.value)
    assert producer.get("r", "a") is None


def test_schedule_body_over_the_limit_is_refused(build: Callable[..., Producer]) -> None:
    producer = build(max_body="1KiB")
    assert producer.schedule("r", b"x" * 1024, delay="1s").status == "accepted"
    with pytest.raises(EnvelopeError, match="at most 1024 bytes; got 1025"):
        producer.schedule("r", b"x" * 1025, delay="1s")


def test_schedule_own_target_that_the_route_permits_is_taken(
    build: Callable[..., Producer],
) -> None:
    producer = build(allow_targets=[{"broker": "b", "topic": "order-*"}])
    target = Target("b", topic="order-eu")
    assert producer.schedule("r", b"x", delay="1s", target=target).status == "accepted"
    with pytest.raises(EnvelopeError, match="allow_targets"):
        producer.schedule("r", b"x", delay="1s", target=Target("b", topic="invoice"))


def test_schedule_what_amqp_cannot_carry_is_refused(build: Callable[..., Producer]) -> None:
    producer = build("rabbitmq")
    for body, fields in (
        (None, {}),
        (b"x", {"key": b"k"}),
        (b"x", {"headers": [("h", "1"), ("h", "2")]}),
    ):
        with pytest.raises(EnvelopeError, match="RabbitMQ"):
            producer.schedule("r", body, delay="1s", **fields)  # type: ignore[arg-type]
    assert producer.schedule("r", b"x", delay="1s", priority=5, type="t").status == "accepted"


def test_schedule_what_kafka_cannot_carry_is_refused(build: Callable[..., Producer]) -> None:
    producer = build("kafka")
    with pytest.raises(EnvelopeError, match="only content_type on a Kafka route; got priority"):
        producer.schedule("r", b"x", delay="1s", priority=5)
    repeated = [("h", "1"), ("h", "2")]
    with pytest.raises(EnvelopeError, match="expected a key beside a body of None"):
        producer.schedule("r", None, delay="1s")
    receipt = producer.schedule("r", None, delay="1s", key=b"k", headers=repeated)
    assert receipt.status == "accepted"


def test_schedule_many_refused_one_loses_no_other(build: Callable[..., Producer]) -> None:
    producer = build(max_body="1KiB", shards=3)
    bodies = [b"x" * (2000 if place == 700 else 10) for place in range(1500)]
    envelopes = (
        Envelope.new(body, delay="1h", id=f"id{place}") for place, body in enumerate(bodies)
    )
    receipts = producer.schedule_many("r", envelopes)
    assert [receipt.id for receipt in receipts] == [f"id{place}" for place in range(1500)]
    assert [receipt.id for receipt in receipts if receipt.status != "accepted"] == ["id700"]
    assert "at most 1024 bytes" in receipts[700].error


def test_schedule_stream_holds_one_batch_of_what_it_reads(producer: Producer) -> None:
    read = 0

    def envelopes() -> Iterator[Envelope]:
        nonlocal read
        for read in range(1, 2_001):
            yield Envelope.new(b"x", delay="1h", id=f"id{read}")

    receipts = producer.schedule_stream("r", envelopes())
    assert read == 0, "nothing is stored before a receipt is asked for"
    for place, receipt in enumerate(receipts, 1):
        assert (receipt.id, receipt.status) == (f"id{place}", "accepted")
        assert read <= place + 501
    assert place == 2_000
    with pytest.raises(ConfigError, match="got 'q'"):
        producer.schedule_stream("q", envelopes())


def test_cancel_pending_is_certain_and_ends_it(producer: Producer) -> None:
    producer.schedule("r", b"x", delay="1h", id="a")
    assert producer.cancel("r", "a") == "cancelled"
    assert producer.cancel("r", "a") == "unknown"
    assert producer.get("r", "a") is None


def test_reschedule_moves_the_due_instant(producer: Producer) -> None:
    producer.schedule("r", b"x", delay="1h", id="a", expires="5h")
    at = datetime.now(UTC) + timedelta(hours=3)
    assert producer.reschedule("r", "a", at=at) == "rescheduled"
    known = producer.get("r", "a")
    assert known is not None
    assert abs(known.due_at_ms - at.timestamp() * 1000) <= 1
    assert producer.reschedule("r", "nobody", delay="1s") == "unknown"
    with pytest.raises(EnvelopeError, match="expires"):
        producer.reschedule("r", "a", delay="6h")
    with pytest.raises(EnvelopeError, match="max_delay"):
        producer.reschedule("r", "a", delay="400d")


def test_remember_by_the_route_makes_a_rerun_a_duplicate(build: Callable[..., Producer]) -> None:
    producer = build(remember="24h")
    producer.schedule("r", b"x", delay="1h", id="a")
    producer.cancel("r", "a")
    assert producer.schedule("r", b"x", delay="1h", id="a").status == "duplicate"
    assert producer.schedule("r", b"other", delay="1h", id="a").status == "accepted"


def test_open_route_with_another_number_of_shards_is_refused(
    build: Callable[..., Producer], connection: Connection
) -> None:
    first = build(shards=2)
    first.schedule("r", b"x", delay="1h")
    route = first._config.routes["r"].model_copy(update={"shards": 4})
    second = Producer(first._config.model_copy(update={"routes": {"r": route}}), connection)
    with pytest.raises(StoreUnfit, match="expected shards: 2, as the store has it; got 4"):
        second.schedule("r", b"x", delay="1h")


@pytest.mark.parametrize("id", ["\ud800", "a\udcff"])
def test_ask_for_an_id_that_utf8_cannot_carry_is_refused(producer: Producer, id: str) -> None:
    for ask in (producer.get, producer.cancel, partial(producer.reschedule, delay="1s")):
        with pytest.raises(EnvelopeError, match="id: expected text that UTF-8 can carry"):
            ask("r", id)


def test_cancel_and_reschedule_of_what_may_be_cold_are_recorded(
    build: Callable[..., Producer],
) -> None:
    producer = build(cold_tier={"path": "/cold", "horizon": "7d"})
    assert producer.reschedule("r", "a", delay="1h") == "recorded"
    assert producer.cancel("r", "a") == "recorded"
