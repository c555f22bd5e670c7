"""The producer's API against a real store: what it answers, and what it refuses."""

import asyncio
import secrets
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from duebridge import AsyncProducer
from duebridge.envelope import Envelope, Target
from duebridge.errors import (
    ConfigError,
    EnvelopeError,
    StoreError,
    StoreFull,
    StoreUnavailable,
    UnknownRoute,
)
from duebridge.producer import Producer
from duebridge.receipt import Receipt
from duebridge.store.batching import SCHEDULE_BYTES
from duebridge.store.routing import shard_number
from duebridge.store.server.connection import open_connection
from duebridge.store.server.reconnects import Reconnects
from duebridge.store.wire.record import MAX_CONTENT_BYTES
from tests.acceptance.site import memory_config
from tests.support.network.proxy import Proxy, proxied
from tests.support.servers import redis_server

SECONDS = 4_102_444_800  # the year 2100
Build = Callable[..., Producer]


@pytest.fixture
def build(embedded: Path) -> Iterator[Build]:
    made: list[Producer] = []

    def build_producer(**route: Any) -> Producer:
        store = {"url": f"embedded:{embedded}", "namespace": f"p-{secrets.token_hex(6)}"}
        routes = {"r": {"target": {"broker": "b", "topic": "t"}, **route}}
        brokers = {"b": {"type": "memory"}, "amqp": {"type": "rabbitmq", "url": "amqp://localhost"}}
        config = memory_config(routes, store=store, brokers=brokers)
        made.append(Producer(config, open_connection(config.store.url)))
        return made[-1]

    yield build_producer
    for producer in made:
        producer.close()


@pytest.fixture
def producer(build: Build) -> Producer:
    return build()


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"delay": "366d"}, "due: expected within max_delay (365d) of now"),
        ({"at": datetime.now(UTC) + timedelta(days=400)}, "due: expected within max_delay (365d)"),
        ({"delay": "2h", "expires": "1h"}, "expires: expected an instant after"),
        ({"delay": "1s", "headers": {"x-attempt": "1"}}, "that duebridge does not set"),
        ({"delay": "1s", "headers": {f"h{i}": "v" for i in range(65)}}, "at most 64; got 65"),
        ({"delay": "1s", "headers": {"h": "v" * 40_000}}, "at most 32768 bytes; got 40001"),
        ({"delay": "1s", "target": Target("b", topic="else")}, "allow_targets of route 'r'"),
        ({"at": SECONDS}, "at: expected epoch milliseconds; got 4102444800, which looks like"),
        ({"delay": "1s", "expires": SECONDS}, "expires: expected epoch milliseconds; got 4102"),
        ({"delay": "1s", "expires": 0}, "expires: expected epoch ms above 0; got 0"),
        ({"dealy": "5s"}, "unknown field 'dealy', did you mean delay?"),
        ({"delay": "1s", "on_conflict": "ignore"}, "expected refuse or replace; got 'ignore'"),
    ],
    ids=range(12),
)
def test_schedule_refused_says_why_and_stores_nothing(
    producer: Producer, fields: dict[str, Any], message: str
) -> None:
    with pytest.raises(EnvelopeError) as refusal:
        producer.schedule("r", b"x", id="a", **fields)
    assert message in str(refusal.value)
    assert producer.get("r", "a") is None


def test_schedule_of_json_under_a_uuid_is_found_by_it(producer: Producer) -> None:
    name = uuid4()
    receipt = producer.schedule("r", json={"a": 1}, delay="1h30m", id=name, key="k")
    assert (receipt.id, receipt.status) == (str(name), "accepted")
    known = producer.get("r", name)
    assert known is not None
    assert known.state == "pending"
    assert producer.reschedule("r", name, delay="2w") == "rescheduled"
    assert producer.cancel("r", name) == "cancelled"


def test_schedule_body_over_the_limit_is_refused(build: Build) -> None:
    producer = build(max_body="1KiB")
    assert producer.schedule("r", b"x" * 1024, delay="1s").status == "accepted"
    with pytest.raises(EnvelopeError, match="at most 1024 bytes; got 1025"):
        producer.schedule("r", b"x" * 1025, delay="1s")


def test_schedule_own_target_that_the_route_permits_is_taken(build: Build) -> None:
    producer = build(allow_targets=[{"broker": "b", "topic": "order-*"}])
    target = Target("b", topic="order-eu")
    assert producer.schedule("r", b"x", delay="1s", target=target).status == "accepted"
    with pytest.raises(EnvelopeError, match="allow_targets"):
        producer.schedule("r", b"x", delay="1s", target=Target("b", topic="invoice"))


def test_schedule_what_could_be_no_dead_letter_is_refused(build: Build) -> None:
    producer = build(dead_letter={"broker": "amqp", "exchange": "", "routing_key": "dead"})
    with pytest.raises(EnvelopeError, match=r"^body: expected bytes on RabbitMQ; got None"):
        producer.schedule("r", None, delay="1s")
    (refused, stored) = producer.schedule_many(
        "r", [Envelope.new(body, delay="1s", key=b"k") for body in (None, b"x")]
    )
    assert (refused.status, stored.status) == ("refused", "accepted")


def test_schedule_many_with_one_that_cannot_be_packed_refuses_that_one_alone(
    producer: Producer,
) -> None:
    keys = [b"a", b"k" * MAX_CONTENT_BYTES, b"c"]
    given = [Envelope.new(b"x", delay="1s", key=key) for key in keys]
    receipts = producer.schedule_many("r", given)
    assert [each.status for each in receipts] == ["accepted", "refused", "accepted"]
    assert receipts[1].error.startswith("envelope: expected up to ")


def test_schedule_many_of_mappings_says_how_to_build_envelopes(producer: Producer) -> None:
    mapping: Any = {"body": b"", "delay": "1s"}
    expected = "^envelopes: expected Envelope; got dict; build one with Envelope.new$"
    with pytest.raises(EnvelopeError, match=expected):
        producer.schedule_many("r", [mapping])


async def as_they_come() -> AsyncIterator[Envelope]:
    yield Envelope.new(b"x", delay="1s")


@pytest.mark.parametrize("given", [None, Envelope.new(b"x", delay="1s"), 5, as_they_come()])
def test_schedule_many_of_no_iterable_says_what_it_expects(producer: Producer, given: Any) -> None:
    expected = f"^envelopes: expected an iterable of Envelope; got {type(given).__name__}$"
    with pytest.raises(EnvelopeError, match=expected):
        producer.schedule_many("r", given)


@pytest.mark.parametrize("given", [None, ["r"], b"r"])
def test_schedule_on_a_route_that_is_no_name_says_so(producer: Producer, given: Any) -> None:
    with pytest.raises(UnknownRoute, match=r"^route: expected its name; got"):
        producer.schedule(given, b"x", delay="1s")


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


def test_schedule_many_with_large_headers_makes_calls_of_a_bounded_size(build: Build) -> None:
    producer = build()
    producer.schedule("r", b"x", delay="1h")
    calls: list[str] = []
    producer._connection.observe = lambda name, _: calls.append(name)
    headers = {f"h{number}": b"v" * 500 for number in range(60)}
    batch = [Envelope.new(b"x", delay="1h", headers=headers) for _ in range(100)]
    assert {each.status for each in producer.schedule_many("r", batch)} == {"accepted"}
    assert len(calls) >= 100 * 60 * 500 // SCHEDULE_BYTES


def test_schedule_stream_refuses_at_the_call_and_not_at_the_first_receipt(
    producer: Producer,
) -> None:
    other: Any = "ignore"
    with pytest.raises(ConfigError, match="got 'q'"):
        producer.schedule_stream("q", [])
    with pytest.raises(EnvelopeError, match="expected refuse or replace"):
        producer.schedule_stream("r", [], on_conflict=other)


def test_reschedule_moves_the_due_instant(producer: Producer) -> None:
    producer.schedule("r", b"x", delay="1h", id="a", expires="5h")
    at = datetime.now(UTC) + timedelta(hours=3)
    assert producer.reschedule("r", "a", at=at) == "rescheduled"
    known = producer.get("r", "a")
    assert known is not None
    assert abs(known.due_at_ms - at.timestamp() * 1000) <= 1
    assert producer.reschedule("r", "nobody", delay="1s") == "unknown"
    with pytest.raises(EnvelopeError, match="looks like seconds"):
        producer.reschedule("r", "a", at=SECONDS)
    for delay, field in (("6h", "expires"), ("400d", "max_delay")):
        with pytest.raises(EnvelopeError, match=field):
            producer.reschedule("r", "a", delay=delay)


def test_remember_by_the_route_tells_a_rerun_what_became_of_it(build: Build) -> None:
    producer = build(remember="24h")
    producer.schedule("r", b"x", delay="1h", id="a")
    producer.cancel("r", "a")
    assert producer.schedule("r", b"x", delay="1h", id="a").status == "cancelled"
    assert producer.get("r", "a") is None
    reopened = producer.schedule("r", b"x", delay="1h", id="a", on_conflict="replace")
    known = producer.get("r", "a")
    assert known is not None
    assert (reopened.status, known.state, known.attempt) == ("replaced", "pending", 0)
    producer.cancel("r", "a")
    assert producer.schedule("r", b"other", delay="1h", id="a").status == "accepted"


def test_ask_for_what_is_no_id_says_what_to_pass(producer: Producer) -> None:
    receipt: Any = producer.schedule("r", b"", delay="1h")
    refusals = {
        "\ud800": "id: expected text that UTF-8 can carry",
        receipt: r"^id: expected text or a UUID; got Receipt; pass receipt\.id$",
        5: r"^id: expected text or a UUID; got int$",
    }
    for ask in (producer.get, producer.cancel, partial(producer.reschedule, delay="1s")):
        for given, message in refusals.items():
            with pytest.raises(EnvelopeError, match=message):
                ask("r", given)


def test_cancel_and_reschedule_of_what_may_be_cold_are_recorded(build: Build) -> None:
    producer = build(cold_tier={"path": "/cold", "horizon": "7d"})
    assert producer.reschedule("r", "a", delay="1h") == "recorded"
    assert producer.cancel("r", "a") == "recorded"


@pytest.fixture
def lossy(tmp_path: Path) -> Iterator[tuple[Producer, Proxy]]:
    """A producer that repeats no call, and the proxy that loses replies of its store."""
    with redis_server(tmp_path) as port, proxied(port) as proxy:
        store = {"url": f"redis://127.0.0.1:{proxy.port}/0", "allow_unfit": ["persistence"]}
        routes = {"r": {"target": {"broker": "memory", "topic": "t"}, "shards": 2}}
        config = memory_config(routes, store=store)
        connection = open_connection(config.store.url)
        hours = count(0, 3600)  # no pause after a failure is long by this clock
        connection._reconnects[""] = Reconnects(lambda: float(next(hours)))
        with Producer(config, connection, repeat_for_s=0) as producer:
            yield producer, proxy


def unanswered(call: Callable[[], object]) -> list[str]:
    with pytest.raises(StoreUnavailable) as lost:
        call()
    return sorted(lost.value.ids)


def test_call_without_an_answer_names_the_ids_to_call_again_with(
    lossy: tuple[Producer, Proxy],
) -> None:
    producer, proxy = lossy
    proxy.lose_reply_to(b"HSETNX")  # the first call opens the route
    (drawn,) = unanswered(lambda: producer.schedule("r", b"x", delay="1h"))
    assert producer.schedule("r", b"x", delay="1h", id=drawn).status == "accepted"
    proxy.lose_reply_to(b"EVALSHA")
    (drawn,) = unanswered(lambda: producer.schedule("r", b"x", delay="1h"))
    assert producer.schedule("r", b"x", delay="1h", id=drawn).status == "duplicate"
    for call in (producer.cancel, partial(producer.reschedule, delay="2h")):
        proxy.lose_reply_to(b"EVALSHA")
        assert unanswered(partial(call, "r", drawn)) == [drawn]


def by_shard(ids: Iterable[str]) -> tuple[list[str], list[str]]:
    """Return the ids of the first one's shard, which is asked first, and those of the other."""
    given = list(ids)
    first = shard_number(given[0], 2)
    return (
        [each for each in given if shard_number(each, 2) == first],
        [each for each in given if shard_number(each, 2) != first],
    )


def many(count: int) -> list[Envelope]:
    return [Envelope.new(b"x", delay="1h", id=f"id{number}") for number in range(count)]


def test_schedule_many_without_an_answer_tells_what_it_knows_of_each(
    lossy: tuple[Producer, Proxy],
) -> None:
    producer, proxy = lossy
    elsewhere = Target(broker="b", topic="q")
    batch = [*many(9), Envelope.new(b"x", delay="1h", id="refused", target=elsewhere)]
    first, second = by_shard(each.id for each in batch[:9])
    producer.schedule("r", b"other", delay="1h", id=first[0])
    proxy.lose_reply_to(second[0].encode())
    with pytest.raises(StoreUnavailable) as lost:
        producer.schedule_many("r", batch)
    told = {each.id: each.status for each in lost.value.receipts}
    taken = dict.fromkeys(first[1:], "accepted")
    assert told == {first[0]: "conflict", **taken, "refused": "refused"}
    assert sorted(lost.value.ids) == sorted(second)
    proxy.lose_reply_to(b"EVALSHA")
    assert unanswered(lambda: producer.schedule_many("r", batch)) == sorted(first + second)
    again = producer.schedule_many("r", batch)
    assert {each.status for each in again} == {"conflict", "duplicate", "refused"}


def test_schedule_many_in_a_store_that_fills_up_tells_what_it_took(
    lossy: tuple[Producer, Proxy],
) -> None:
    producer, _ = lossy
    producer.schedule_many("r", many(9)[:2])
    client: Any = producer._connection.client
    first, second = by_shard(each.id for each in many(9))
    producer._connection.observe = lambda *_: client.config_set("maxmemory", 1)
    with pytest.raises(StoreFull, match="no room for ") as full:
        producer.schedule_many("r", many(9))
    assert sorted(each.id for each in full.value.receipts) == sorted(first)
    assert sorted(full.value.ids) == sorted(second)


LARGE = secrets.token_bytes(20_000)  # a dozen are a batch


Load = Callable[[Producer, Iterable[Envelope], list[Receipt]], None]


def load_list(producer: Producer, left: Iterable[Envelope], receipts: list[Receipt]) -> None:
    receipts += producer.schedule_many("r", left)


def load_stream(producer: Producer, left: Iterable[Envelope], receipts: list[Receipt]) -> None:
    receipts.extend(producer.schedule_stream("r", left))


def load_async(producer: Producer, left: Iterable[Envelope], receipts: list[Receipt]) -> None:
    async def load() -> None:
        shared = AsyncProducer(lambda: producer)
        try:
            async for each in shared.schedule_stream("r", left):
                receipts.append(each)
        finally:
            shared._threads.shutdown()  # without the producer, which the test goes on with

    asyncio.run(load())


@pytest.mark.parametrize("body", [b"x", LARGE])
@pytest.mark.parametrize("load", [load_list, load_stream, load_async])
def test_schedule_without_an_answer_loses_sight_of_no_envelope(
    lossy: tuple[Producer, Proxy], body: bytes, load: Load
) -> None:
    producer, proxy = lossy
    every = [f"id{number:03}" for number in range(300)]
    left = (Envelope.new(body, delay="1h", id=each) for each in every)
    producer.schedule_many("r", [])
    receipts: list[Receipt] = []
    proxy.lose_reply_to(b"id130")
    with pytest.raises(StoreUnavailable) as lost:
        load(producer, left, receipts)
    told = [each.id for each in (*receipts, *lost.value.receipts)]
    assert sorted([*told, *lost.value.ids, *(each.id for each in left)]) == every
    assert told
    assert all(producer.get("r", each) for each in told)


@pytest.mark.parametrize("kind", [Producer, AsyncProducer])
def test_producer_without_a_configuration_says_what_to_call(kind: Any) -> None:
    with pytest.raises(ConfigError, match=rf"use {kind.__name__}\.from_config"):
        kind()


def test_schedule_after_close_is_refused_and_opens_no_connection(producer: Producer) -> None:
    producer.schedule("r", b"x", delay="1h")
    producer.close()
    for late in (partial(producer.schedule, body=b"x", delay="1h"), partial(producer.get, id="a")):
        with pytest.raises(StoreError, match=r"closed; .*Producer\.from_config"):
            late("r")
