"""Envelopes through the public API: refused in words, or stored and delivered byte for byte."""

import re
import time
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from duebridge.admin.operator import Operator
from duebridge.config.models import Config
from duebridge.envelope import Envelope, HeaderValue, Properties
from duebridge.errors import EnvelopeError
from duebridge.ports.publisher import Delivery, Reason
from duebridge.producer import Producer
from duebridge.receipt import Receipt, Shown
from duebridge.store.connection import Connection
from tests.fuzz.budget import drawn, fuzz
from tests.fuzz.envelopes import BATCH, Batch, Fields, batches, brief
from tests.fuzz.lookout import Lookout, fuzz_config

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
REFUSAL = re.compile(r": .*expected .+", re.DOTALL)

Content = tuple[Any, ...]


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
        drawn["envelopes"] += 1
    return taken


def check_refusal(error: EnvelopeError, fields: Fields) -> None:
    """It says what was expected, and where."""
    assert REFUSAL.search(str(error)), brief(fields)


def given_content(fields: Fields) -> Content:
    """What is to arrive, by the fields as they were given."""
    headers = fields.get("headers") or ()
    pairs = headers.items() if isinstance(headers, dict) else headers
    properties = {name: fields[name] for name in Properties.__struct_fields__ if name in fields}
    return (
        None if fields["body"] is None else bytes(fields["body"]),
        None if fields.get("key") is None else bytes(fields["key"]),
        [(str(name), plain(value)) for name, value in pairs],
        Properties(**properties),
        fields.get("target"),
    )


def plain(value: HeaderValue) -> str:
    """A header's value and its type, a subclass as what it is one of."""
    kind = next(each for each in (bool, int, bytes, str, type(None)) if isinstance(value, each))
    return f"{kind.__name__} {value!r}" if kind is not int else f"int {int(value or 0)}"


def shown_content(shown: Shown) -> Content:
    headers = [(name, plain(value)) for name, value in shown.headers]
    return shown.body, shown.key, headers, shown.properties, shown.target


def delivered_content(delivery: Delivery, target: object) -> Content:
    headers = [(name, plain(value)) for name, value in delivery.headers if name not in OURS]
    properties = delivery.properties or Properties()
    return delivery.body, delivery.key, headers, properties, target and delivery.target


@fuzz(0.6, of_each=BATCH)
@given(batch=batches(), route=st.sampled_from(sorted(ROUTES)))
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
            assert REFUSAL.search(receipt.error)
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
