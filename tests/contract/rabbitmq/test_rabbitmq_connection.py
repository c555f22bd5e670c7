"""What becomes of a batch when the connection to RabbitMQ fails, through a proxy that fails it."""

import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from threading import Event
from urllib.parse import urlsplit

import pytest
from structlog.testing import capture_logs

from duebridge.envelope import Target
from duebridge.ports.publisher import BrokerUnavailable, Delivery, Outcome, Publisher, Verdict
from duebridge_connectors.rabbitmq import open_publisher
from tests.support.contract.broker_under_test import answers_again, delivery, ids, verdicts
from tests.support.network.proxy import Proxy, proxied
from tests.support.rabbitmq.rabbitmq_broker import RabbitBroker, seconds_since
from tests.support.servers import silent_listener

# What is confirmed has to be so within the short one, on a busy machine, too.
DEADLINE_S = 40.0
SHORT_DEADLINE_S = 6.0
PROMPT_S = 15.0  # well below DEADLINE_S
BODY = b"x" * 1000
CONFIRMED, INDETERMINATE = Verdict.CONFIRMED, Verdict.INDETERMINATE


@pytest.fixture
def proxy(rabbitmq_url: str) -> Iterator[Proxy]:
    with proxied(urlsplit(rabbitmq_url).port or 5672) as proxy:
        yield proxy


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(4) as pool:
        yield pool


def publish_unanswered(
    publisher: Publisher, proxy: Proxy, target: Target, pool: ThreadPoolExecutor
) -> "Future[list[Outcome]]":
    """Return a publish of a hundred that reached the broker, whose answers are held."""
    assert verdicts(publisher.publish([delivery(target, BODY)])) == [CONFIRMED]
    proxy.hold()
    batch = [delivery(target, BODY) for _ in range(100)]
    run = pool.submit(lambda: list(publisher.publish(batch)))
    assert proxy.has_passed(100 * len(BODY))
    return run


def test_publish_whose_connection_is_lost_is_indeterminate_and_the_next_one_confirms(
    broker: RabbitBroker, proxy: Proxy, target: Target, pool: ThreadPoolExecutor
) -> None:
    with closing(broker.open_at(proxy.port, DEADLINE_S)) as publisher:
        run = publish_unanswered(publisher, proxy, target, pool)
        proxy.cut()
        assert verdicts(run.result(PROMPT_S)) == [INDETERMINATE] * 100
        assert answers_again(publisher)
        assert verdicts(publisher.publish([delivery(target)])) == [CONFIRMED]


def test_publish_unanswered_by_the_deadline_is_indeterminate_and_was_sent(
    broker: RabbitBroker, proxy: Proxy, target: Target, pool: ThreadPoolExecutor
) -> None:
    with closing(broker.open_at(proxy.port, SHORT_DEADLINE_S)) as publisher:
        run = publish_unanswered(publisher, proxy, target, pool)
        assert verdicts(run.result(SHORT_DEADLINE_S + PROMPT_S)) == [INDETERMINATE] * 100
        with pytest.raises(BrokerUnavailable):
            publisher.ping()
        proxy.release()
        assert answers_again(publisher)
        assert verdicts(publisher.publish([delivery(target)])) == [CONFIRMED]
    assert broker.count(target) == 102


def test_publish_behind_one_that_waits_alone_is_unavailable_at_the_deadline_and_never_sent(
    broker: RabbitBroker, proxy: Proxy, target: Target
) -> None:
    with closing(broker.open_at(proxy.port, SHORT_DEADLINE_S)) as publisher:
        assert verdicts(publisher.publish([delivery(target, b"")])) == [CONFIRMED]
        proxy.hold()
        batch = [delivery(target, b"larger than any before"), delivery(target), delivery(target)]
        outcomes = publisher.publish(batch)
        assert verdicts(outcomes) == [INDETERMINATE, Verdict.UNAVAILABLE, Verdict.UNAVAILABLE]
        proxy.release()
        assert verdicts(publisher.publish([delivery(target)])) == [CONFIRMED]
    assert broker.count(target) == 3


def test_close_while_a_publish_is_unanswered_makes_it_indeterminate_at_once(
    broker: RabbitBroker, proxy: Proxy, target: Target, pool: ThreadPoolExecutor
) -> None:
    publisher = broker.open_at(proxy.port, DEADLINE_S)
    run = publish_unanswered(publisher, proxy, target, pool)
    started = time.monotonic()
    publisher.close()
    assert verdicts(run.result(PROMPT_S)) == [INDETERMINATE] * 100
    assert seconds_since(started) < 2 * PROMPT_S


def test_close_in_a_handshake_ends_in_order_and_promptly(broker: RabbitBroker) -> None:
    with silent_listener() as port, capture_logs() as logs:
        publisher = broker.open_at(port, 0.2)
        outcomes = publisher.publish([delivery(broker.missing_target())])
        started = time.monotonic()
        publisher.close()
        assert seconds_since(started) < PROMPT_S
    assert verdicts(outcomes) == [Verdict.UNAVAILABLE]
    assert logs == []


def test_publish_to_a_broker_that_stays_silent_is_unavailable_when_the_connect_times_out() -> None:
    with silent_listener() as port:
        url = f"amqp://guest:guest@127.0.0.1:{port}/?stack_timeout=0.5"
        with closing(open_publisher({"url": url}, DEADLINE_S)) as publisher:
            started = time.monotonic()
            outcomes = publisher.publish(
                [delivery(Target("rabbitmq", exchange="", routing_key="q"))]
            )
            assert verdicts(outcomes) == [Verdict.UNAVAILABLE]
            assert seconds_since(started) < 2 * PROMPT_S


def publish_until_confirmed(
    publisher: Publisher, batch: list[Delivery], doubtful: set[str]
) -> None:
    """Publish what is not confirmed again and again; note the ids that ever were in doubt."""
    give_up_at = time.monotonic() + 60
    while batch and time.monotonic() < give_up_at:
        outcomes = publisher.publish(batch)
        found = list(zip(batch, outcomes, strict=True))
        doubtful |= {d.id for d, o in found if o.verdict is INDETERMINATE}
        batch = [d for d, o in found if o.verdict is not CONFIRMED]
        Event().wait(0.01 if batch else 0)
    assert not batch


def test_publish_through_a_connection_cut_again_and_again_repeats_only_what_was_in_doubt(
    broker: RabbitBroker, proxy: Proxy, target: Target, pool: ThreadPoolExecutor
) -> None:
    published: set[str] = set()
    doubtful: set[str] = set()
    is_over = Event()

    def publish_on() -> None:
        while not is_over.is_set():
            batch = [delivery(target, BODY) for _ in range(100)]
            publish_until_confirmed(publisher, batch, doubtful)
            published.update(ids(batch))

    with closing(broker.open_at(proxy.port, DEADLINE_S)) as publisher:
        runs = [pool.submit(publish_on) for _ in range(4)]
        cuts = 0
        try:
            while cuts < 4 or not doubtful:
                proxy.count_anew()
                assert proxy.has_passed(20 * len(BODY))
                proxy.cut()
                cuts += 1
        finally:
            is_over.set()
        for run in runs:
            run.result(60)
    times = Counter(ids(broker.read_all(target)))
    assert times.keys() == published
    assert {id_ for id_, count in times.items() if count > 1} <= doubtful
