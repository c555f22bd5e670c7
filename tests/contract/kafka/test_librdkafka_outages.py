"""Lost answers and connections, and topics that nobody made, on a real broker behind a proxy."""

import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from typing import Any

import pytest

from duebridge.envelope import Target
from duebridge.ports.publisher import Delivery, Verdict
from duebridge_connectors.kafka.librdkafka import open_librdkafka
from duebridge_connectors.kafka.librdkafka.client import NO_TOPIC
from duebridge_connectors.kafka.librdkafka.settings import producer_config
from duebridge_connectors.kafka.publisher import KafkaPublisher
from tests.support.contract.broker_under_test import answers_again, delivery, ids, verdicts
from tests.support.kafka.kafka_broker import KafkaBroker, LibrdkafkaBroker
from tests.support.kafka.own_kafka import ProxiedKafka, proxied_kafka
from tests.support.network.proxy import Proxy
from tests.support.running_clock import ends_within
from tests.support.servers import wait_until

DEADLINE_S = 3.0
MARGIN_S = 1.0
MOST_CONNECTIONS = 15  # within two publishes


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ProxiedKafka]:
    with proxied_kafka(tmp_path_factory.mktemp("kafka")) as kafka:
        yield kafka


@pytest.fixture(scope="module")
def broker(kafka: ProxiedKafka) -> Iterator[LibrdkafkaBroker]:
    with closing(LibrdkafkaBroker(kafka.bootstrap)) as broker:
        yield broker


@pytest.fixture
def proxy(kafka: ProxiedKafka) -> Iterator[Proxy]:
    yield kafka.proxy
    kafka.proxy.release()


@pytest.fixture
def publisher(broker: LibrdkafkaBroker, proxy: Proxy) -> Iterator[KafkaPublisher[Any]]:
    with closing(broker.open_at(proxy.port, DEADLINE_S)) as publisher:
        yield publisher


@pytest.fixture
def target(broker: LibrdkafkaBroker, publisher: KafkaPublisher[Any]) -> Target:
    """Return one that the publisher has published to."""
    target = broker.missing_target()
    broker.create(target)
    assert verdicts(publisher.publish([delivery(target)])) == [Verdict.CONFIRMED]
    return target


def batch_for(target: Target) -> list[Delivery]:
    return [delivery(target) for _ in range(10)]


def publish_in_time(publisher: KafkaPublisher[Any], batch: Sequence[Delivery]) -> set[Verdict]:
    with ends_within(DEADLINE_S + MARGIN_S):
        return set(verdicts(publisher.publish(batch)))


def test_publish_to_a_missing_topic_creates_none_even_where_the_broker_would(
    broker: LibrdkafkaBroker, publisher: KafkaPublisher[Any]
) -> None:
    missing = broker.missing_target()
    for _ in range(2):
        publisher.ping()
        assert verdicts(publisher.publish([delivery(missing)])) == [Verdict.TARGET_FAILED]
    assert {missing.topic, NO_TOPIC}.isdisjoint(broker._admin.list_topics())


def test_publish_whose_answers_are_lost_is_indeterminate_and_may_be_there(
    broker: LibrdkafkaBroker, proxy: Proxy, publisher: KafkaPublisher[Any], target: Target
) -> None:
    batch = batch_for(target)
    proxy.hold()
    assert publish_in_time(publisher, batch) == {Verdict.INDETERMINATE}
    arrived = ids(broker.read_all(target))[1:]
    assert arrived  # how many of them the first request took is up to the client
    assert arrived == ids(batch)[: len(arrived)]
    proxy.release()
    assert answers_again(publisher)
    assert publish_in_time(publisher, batch_for(target)) == {Verdict.CONFIRMED}


def wedged(broker: LibrdkafkaBroker, proxy: Proxy) -> KafkaPublisher[Any]:
    """Return a publisher whose client does not give up by itself."""
    settings = {"bootstrap_servers": [f"127.0.0.1:{proxy.port}"]}
    patience = {"message.timeout.ms": 60_000, "request.timeout.ms": 60_000}
    return open_librdkafka({**producer_config(settings, DEADLINE_S), **patience}, DEADLINE_S)


@pytest.mark.parametrize("is_wedged", [False, True])
def test_publish_what_waited_behind_a_lost_answer_never_goes_out_later(
    is_wedged: bool, broker: LibrdkafkaBroker, proxy: Proxy, target: Target
) -> None:
    sent, queued, after = delivery(target), batch_for(target), batch_for(target)
    opened = wedged(broker, proxy) if is_wedged else broker.open_at(proxy.port, DEADLINE_S)
    with closing(opened) as publisher:
        assert publish_in_time(publisher, [delivery(target)]) == {Verdict.CONFIRMED}
        proxy.hold()
        with ThreadPoolExecutor(2) as pool:
            runs = [pool.submit(publish_in_time, publisher, [sent])]
            assert proxy.has_passed(len(sent.id))
            runs.append(pool.submit(publish_in_time, publisher, queued))
            assert [run.result() for run in runs] == [{Verdict.INDETERMINATE}] * 2
        assert publisher.replaced == is_wedged
        proxy.release()
        assert answers_again(publisher)
        assert publish_in_time(publisher, after) == {Verdict.CONFIRMED}
    assert ids(broker.read_all(target))[2:] == ids([sent, *after])


def test_publish_during_an_outage_leaves_only_the_first_batch_uncertain(
    proxy: Proxy, publisher: KafkaPublisher[Any], target: Target
) -> None:
    proxy.hold()
    assert publish_in_time(publisher, batch_for(target)) == {Verdict.INDETERMINATE}
    assert publish_in_time(publisher, batch_for(target)) == {Verdict.UNAVAILABLE}


@pytest.mark.parametrize("client", [KafkaBroker, LibrdkafkaBroker])
def test_publish_behind_a_proxy_that_ends_each_connection_reconnects_seldom(
    client: type[KafkaBroker], kafka: ProxiedKafka, proxy: Proxy, target: Target
) -> None:
    opened = client(kafka.bootstrap)
    with closing(opened), closing(opened.open_at(proxy.port, DEADLINE_S)) as publisher:
        assert publish_in_time(publisher, [delivery(target)]) == {Verdict.CONFIRMED}
        before = proxy.refused
        proxy.refuse(1000)
        for _ in range(2):
            assert Verdict.CONFIRMED not in publish_in_time(publisher, batch_for(target))
        proxy.refuse(0)
        assert 0 < proxy.refused - before <= MOST_CONNECTIONS


def test_close_with_deliveries_under_way_ends_them_at_once_indeterminate(
    proxy: Proxy, publisher: KafkaPublisher[Any], target: Target
) -> None:
    proxy.hold()
    with ThreadPoolExecutor(1) as pool:
        run = pool.submit(publisher.publish, batch_for(target))
        assert proxy.has_passed(1)
        with ends_within(MARGIN_S):
            publisher.close()
            assert verdicts(run.result()) == [Verdict.INDETERMINATE] * 10


def test_close_ends_its_thread(publisher: KafkaPublisher[Any], target: Target) -> None:
    publisher.close()
    wait_until(lambda: not any(t.name == "librdkafka" for t in threading.enumerate()), "the end")
