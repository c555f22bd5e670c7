"""What the producers answer to arguments that they cannot use, and to text, JSON and UUIDs."""

import asyncio
import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from duebridge import AsyncProducer, ConfigError, Envelope, EnvelopeError, Producer
from duebridge.config.models import Config
from duebridge.store.connection import open_connection


@pytest.fixture
def producer(embedded: Path) -> Iterator[Producer]:
    url = f"embedded:{embedded}"
    config = Config.model_validate(
        {
            "version": 1,
            "store": {"url": url, "namespace": f"a-{secrets.token_hex(6)}"},
            "brokers": {"b": {"type": "memory"}},
            "routes": {"r": {"target": {"broker": "b", "topic": "t"}, "shards": 2}},
        }
    )
    with Producer(config, open_connection(url)) as producer:
        yield producer


def test_schedule_with_a_misspelt_field_names_the_close_one(producer: Producer) -> None:
    misspelt: Any = {"dealy": "5s"}
    with pytest.raises(EnvelopeError, match=r"^unknown field 'dealy', did you mean delay\?$"):
        producer.schedule("r", b"", **misspelt)


def test_schedule_of_json_under_a_uuid_is_found_by_it(producer: Producer) -> None:
    name = uuid4()
    receipt = producer.schedule("r", json={"a": 1}, delay="1h30m", id=name, key="k")
    assert (receipt.id, receipt.status) == (str(name), "accepted")
    known = producer.get("r", name)
    assert known is not None
    assert known.state == "pending"
    assert producer.reschedule("r", name, delay="2w") == "rescheduled"
    assert producer.cancel("r", name) == "cancelled"


def test_schedule_with_another_word_for_conflicts_is_refused(producer: Producer) -> None:
    other: Any = "ignore"
    expected = "^on_conflict: expected refuse or replace; got 'ignore'$"
    with pytest.raises(EnvelopeError, match=expected):
        producer.schedule("r", b"", delay="1s", on_conflict=other)
    with pytest.raises(EnvelopeError, match=expected):
        producer.schedule_stream("r", [], on_conflict=other)


def test_schedule_many_of_mappings_says_how_to_build_envelopes(producer: Producer) -> None:
    mapping: Any = {"body": b"", "delay": "1s"}
    expected = "^envelopes: expected Envelope; got dict; build one with Envelope.new$"
    with pytest.raises(EnvelopeError, match=expected):
        producer.schedule_many("r", [mapping])


@pytest.mark.parametrize("call", [Producer.cancel, Producer.get, Producer.reschedule])
def test_call_with_a_receipt_for_an_id_says_what_to_pass(producer: Producer, call: Any) -> None:
    receipt = producer.schedule("r", b"", delay="1h")
    with pytest.raises(EnvelopeError, match=r"^id: expected text; got Receipt; pass receipt\.id$"):
        call(producer, "r", receipt)
    with pytest.raises(EnvelopeError, match=r"^id: expected text; got int$"):
        call(producer, "r", 5)


def test_producer_without_a_configuration_says_what_to_call() -> None:
    with pytest.raises(ConfigError, match=r"use Producer\.from_config"):
        Producer()
    with pytest.raises(ConfigError, match=r"use AsyncProducer\.from_config"):
        AsyncProducer()


def test_async_schedule_takes_and_refuses_the_same(producer: Producer) -> None:
    misspelt: Any = {"dealy": "5s"}

    async def calls() -> None:
        async_producer = AsyncProducer(lambda: producer)
        receipt = await async_producer.schedule("r", "text", delay="1s")
        assert receipt.status == "accepted"
        many = await async_producer.schedule_many("r", [Envelope.new(json=[1], delay="1s")])
        assert [each.status for each in many] == ["accepted"]
        with pytest.raises(EnvelopeError, match="did you mean delay"):
            await async_producer.schedule("r", b"", **misspelt)

    asyncio.run(calls())
