"""Consumers that fail: a ladder of retry topics before, an intake after."""

from collections.abc import Callable
from contextlib import closing
from itertools import islice, pairwise
from pathlib import Path
from typing import Any

import pika
import pytest
from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer

from tests.programs.site import WITHIN_S, Open, Running, Site
from tests.programs.toolchains import java, python

SPRING = (pytest.mark.long, pytest.mark.timeout(600))  # Maven, the first time
BEFORE, AFTER = (pytest.param(which, marks=SPRING) for which in ("before", "after"))
Read = Callable[[str, int], list[Any]]
CLOSED = "closed order-2"
RUNGS = ("-retry-1000", "-retry-2000")


def tries(program: Running, count: int) -> list[int]:
    """Return when the program tried the order that fails, epoch ms."""
    found: list[int] = []
    while len(found) < count:
        what, at = program.line("trying ").removeprefix("trying ").split(" at ")
        found += [int(at)] if what == CLOSED else []
    return found


def assert_is_ladder(times: list[int]) -> None:
    """1 s to the second try, 2 s to the third, none early."""
    first, second, third = times
    assert second - first >= 1000
    assert third - second >= 2000


@pytest.fixture
def site(
    examples: Path, open_site: Open, kafka_bootstrap: str, name: str, topics: KafkaAdminClient
) -> Site:
    with closing(KafkaProducer(bootstrap_servers=kafka_bootstrap)) as producer:
        for order in ("open order-1", CLOSED):
            producer.send(name, order.encode(), key=b"customer-7", headers=[("tenant", b"a")])
    return open_site(examples / "retry-topics", KAFKA=kafka_bootstrap, TOPIC=name)


@pytest.fixture
def records(kafka_bootstrap: str) -> Read:
    """Give what reads so many records of a topic, from its beginning."""

    def read(topic: str, count: int) -> list[Any]:
        settings = {"bootstrap_servers": kafka_bootstrap, "auto_offset_reset": "earliest"}
        wait = {"consumer_timeout_ms": WITHIN_S * 1000}
        with closing(KafkaConsumer(topic, **settings, **wait)) as consumer:
            return list(islice(consumer, count))

    return read


@pytest.mark.parametrize("which", [BEFORE, AFTER])
def test_fail_order_in_spring_is_tried_again_until_it_is_given_up(
    site: Site, name: str, topics: KafkaAdminClient, which: str
) -> None:
    if which == "after":
        site.worker()
    program = site.start(java(site.home, f"{which}/Orders.java"))
    assert_is_ladder(tries(program, 3))
    assert program.line("gave up ") == f"gave up {CLOSED}"
    rungs = {f"{name}{rung}" for rung in RUNGS}
    assert rungs & set(topics.list_topics()) == (rungs if which == "before" else set())


@pytest.mark.long
@pytest.mark.timeout(600)
def test_fail_order_in_spring_keeps_key_headers_and_time(
    site: Site, name: str, records: Read
) -> None:
    site.worker()
    program = site.start(java(site.home, "after/Orders.java"))
    tries(program, 3)
    _, first, second, third = records(name, 4)
    (failed,) = records(f"{name}-later", 1)
    for number, record in enumerate((second, third), start=1):
        headers = dict(record.headers)
        assert (record.key, record.value) == (first.key, first.value)
        assert headers["tenant"] == b"a"
        assert headers["x-round"] == str(number).encode()
        assert int.from_bytes(headers["kafka_dlt-original-timestamp"]) == first.timestamp
        assert headers["x-origin-timestamp"] == str(failed.timestamp).encode()
    (letter,) = records(f"{name}-dlt", 1)
    assert (letter.key, letter.value) == (first.key, first.value)
    assert dict(letter.headers)["tenant"] == b"a"


def test_fail_order_in_python_comes_back_after_the_delay_it_names(
    site: Site, name: str, records: Read
) -> None:
    site.worker()
    program = site.start(python(site.home, "orders.py"))
    times = tries(program, 3)
    assert all(later - sooner >= 1500 for sooner, later in pairwise(times))
    _, first, *again = records(name, 4)
    (letter,) = records(f"{name}-dlt", 1)
    for record in (*again, letter):
        headers = dict(record.headers)
        assert (record.key, record.value) == (first.key, first.value)
        assert headers["tenant"] == b"a"
        assert headers["x-origin-timestamp"] == str(first.timestamp).encode()
    assert dict(letter.headers)["x-dlq-reason"] == b"attempts_exhausted"


@pytest.fixture
def queue_site(examples: Path, open_site: Open, rabbitmq_url: str, name: str, rabbit: Any) -> Site:
    return open_site(examples / "rabbitmq-retries", AMQP_URL=rabbitmq_url, QUEUE=name)


def test_reject_order_from_a_queue_is_tried_again_until_it_is_given_up(
    queue_site: Site, name: str, rabbit: Any
) -> None:
    queue_site.duebridge("intake", "declare", "orders")
    queue_site.worker()
    program = queue_site.start(python(queue_site.home, "orders.py"))
    assert program.line() == "waiting"
    for order in ("open order-1", CLOSED):
        sent = pika.BasicProperties(message_id=order, headers={"tenant": "a"})
        rabbit.basic_publish("", name, order.encode(), sent)
    assert_is_ladder(tries(program, 3))
    _, properties, body = next(rabbit.consume(f"{name}.dead", inactivity_timeout=WITHIN_S))
    assert body == CLOSED.encode()
    assert properties.headers["tenant"] == "a"
    assert properties.headers["x-round"] == "2"
    assert properties.headers["x-dlq-reason"] == "attempts_exhausted"
