"""What becomes of a batch when RabbitMQ blocks, freezes, dies or closes the connection."""

import shlex
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

import pytest

from duebridge.envelope import Target
from duebridge.ports.checks import Destination, Severity
from duebridge.ports.publisher import BrokerUnavailable, Delivery, Reason, Verdict
from duebridge_connectors.rabbitmq import open_publisher
from duebridge_connectors.rabbitmq.broker import RABBITMQ
from duebridge_connectors.rabbitmq.examine import examine
from duebridge_connectors.rabbitmq.publishing.publisher import RabbitPublisher
from tests.support.contract.broker_under_test import answers_again, delivery, verdicts
from tests.support.network.proxy import proxied
from tests.support.rabbitmq.own_rabbitmq import PrivateRabbit
from tests.support.rabbitmq.rabbitmq_broker import RabbitBroker, seconds_since

# What is confirmed has to be so within the short one, on a busy machine, too.
DEADLINE_S = 40.0
SHORT_DEADLINE_S = 6.0
PROMPT_S = 15.0  # well below DEADLINE_S
BODY = b"x" * 1000
CONFIRMED, INDETERMINATE = Verdict.CONFIRMED, Verdict.INDETERMINATE


@pytest.fixture
def own(rabbit: PrivateRabbit) -> Target:
    """Return a target on the private broker that outlives its restart."""
    with closing(RabbitBroker(rabbit.url)) as broker:
        target = broker.missing_target()
        broker.create(target)
        broker.keep()
        return target


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(1) as pool:
        yield pool


def opened(rabbit: PrivateRabbit, deadline_s: float) -> RabbitPublisher:
    return open_publisher({"url": rabbit.url}, deadline_s)


def test_examine_a_full_virtual_host_keeps_the_brokers_words(rabbit: PrivateRabbit) -> None:
    rabbit.control("add_vhost", "full")
    rabbit.control("set_permissions", "-p", "full", "guest", ".*", ".*", ".*")
    rabbit.control("set_vhost_limits", "-p", "full", '{"max-connections": 0}')
    settings = {"type": "rabbitmq", "url": rabbit.url.rpartition("/")[0] + "/full"}
    (finding,) = examine("brokers.billing", settings, [], 5.0)
    assert "connection limit (0) is reached" in finding.found


def test_publish_to_a_blocking_broker_waits_then_is_refused_until_it_unblocks(
    rabbit: PrivateRabbit, own: Target
) -> None:
    with closing(opened(rabbit, SHORT_DEADLINE_S)) as publisher:
        assert verdicts(publisher.publish([delivery(own)])) == [CONFIRMED]
        assert not publisher.is_blocked
        rabbit.starve()
        try:
            # The broker tells a connection that it is blocked when it publishes: these were sent.
            assert verdicts(publisher.publish([delivery(own)] * 3)) == [INDETERMINATE] * 3
            assert publisher.is_blocked
            started = time.monotonic()
            refused = publisher.publish([delivery(own) for _ in range(100)])
            assert verdicts(refused) == [Verdict.UNAVAILABLE] * 100
            with pytest.raises(BrokerUnavailable, match="low on memory"):
                publisher.ping()
            assert seconds_since(started) < PROMPT_S
        finally:
            rabbit.feed()
        assert answers_again(publisher)
        assert not publisher.is_blocked
        assert verdicts(publisher.publish([delivery(own)])) == [CONFIRMED]
    with closing(RabbitBroker(rabbit.url)) as broker:
        assert broker.count(own) == 5


def test_publish_when_the_broker_closes_the_connection_is_indeterminate_and_the_next_confirms(
    rabbit: PrivateRabbit, own: Target, pool: ThreadPoolExecutor
) -> None:
    with closing(opened(rabbit, DEADLINE_S)) as publisher:
        assert verdicts(publisher.publish([delivery(own)])) == [CONFIRMED]
        rabbit.starve()
        try:
            run = pool.submit(lambda: publisher.publish([delivery(own)] * 3))
            rabbit.control("close_all_connections", "by the test")
            outcomes = run.result(PROMPT_S)
            assert verdicts(outcomes) == [INDETERMINATE] * 3
            assert "by the test" in outcomes[0].error_message
        finally:
            rabbit.feed()
        assert answers_again(publisher)
        assert verdicts(publisher.publish([delivery(own)])) == [CONFIRMED]


def test_publish_to_a_frozen_broker_is_indeterminate_at_the_deadline_and_then_confirms(
    rabbit: PrivateRabbit, own: Target
) -> None:
    with closing(opened(rabbit, SHORT_DEADLINE_S)) as publisher:
        assert verdicts(publisher.publish([delivery(own)])) == [CONFIRMED]
        rabbit.freeze()
        try:
            started = time.monotonic()
            assert verdicts(publisher.publish([delivery(own)] * 3)) == [INDETERMINATE] * 3
            assert seconds_since(started) < SHORT_DEADLINE_S + PROMPT_S
        finally:
            rabbit.thaw()
        assert answers_again(publisher)
        assert verdicts(publisher.publish([delivery(own)])) == [CONFIRMED]


def test_publish_to_a_killed_broker_is_indeterminate_and_confirms_when_it_is_back(
    rabbit: PrivateRabbit, own: Target, pool: ThreadPoolExecutor
) -> None:
    with proxied(rabbit.port) as proxy:
        url = f"amqp://guest:guest@127.0.0.1:{proxy.port}/"
        with closing(open_publisher({"url": url}, DEADLINE_S)) as publisher:
            assert verdicts(publisher.publish([delivery(own, BODY)])) == [CONFIRMED]
            rabbit.control("eval", "catch mnesia:sync_log().")  # else the exchange may die with it
            rabbit.freeze()
            proxy.count_anew()
            batch = [delivery(own, BODY) for _ in range(100)]
            run = pool.submit(lambda: publisher.publish(batch))
            assert proxy.has_passed(100 * len(BODY))
            rabbit.kill()
            assert verdicts(run.result(PROMPT_S)) == [INDETERMINATE] * 100
            rabbit.start()
            assert answers_again(publisher)
            outcomes = publisher.publish([delivery(own)])
            assert verdicts(outcomes) == [CONFIRMED], outcomes


def test_printed_permissions_deliver_and_check_the_targets_and_nothing_else(
    rabbit: PrivateRabbit, own: Target
) -> None:
    rabbit.control("add_user", "least", "secret")
    url = rabbit.url.replace("guest:guest", "least:secret")
    default = Target("rabbitmq", exchange="", routing_key=str(own.exchange))
    glob = Target("rabbitmq", exchange="amq.f*", routing_key="")
    (command,) = RABBITMQ.permissions({"url": url}, [own, default, glob])
    assert "secret" not in command
    program, *words = shlex.split(command)
    rabbit.control(*words)
    forbidden = Target("rabbitmq", exchange="amq.direct", routing_key="x")
    fanout = Target("rabbitmq", exchange="amq.fanout", routing_key="x")
    with closing(open_publisher({"url": url}, DEADLINE_S)) as publisher:
        outcomes = publisher.publish([delivery(each) for each in (own, default, forbidden) * 30])
        (unroutable,) = publisher.publish([delivery(fanout)])
    assert program == "rabbitmqctl"
    assert verdicts(outcomes) == [CONFIRMED, CONFIRMED, Verdict.TARGET_FAILED] * 30
    assert {outcome.reason for outcome in outcomes[2::3]} == {Reason.UNAUTHORIZED}
    assert unroutable.reason == Reason.UNROUTABLE
    places = [Destination("r", "routes.r.target", target, 10) for target in (own, default)]
    found = RABBITMQ.examine("brokers.b", {"url": url}, places, DEADLINE_S)
    assert [each for each in found if each.severity is Severity.FAILURE] == []


@pytest.fixture
def reader(rabbit: PrivateRabbit) -> Iterator[str]:
    """A user's URL who may publish to `amq.topic` by keys that begin with `open` alone."""
    rabbit.control("add_user", "reader", "secret")
    rabbit.control("set_permissions", "reader", "", ".*", "")
    rabbit.control("set_topic_permissions", "reader", "amq.topic", "^open", "")
    with closing(RabbitBroker(rabbit.url)) as broker:
        queue = broker.missing_target()
        broker.create(queue)
        broker.channel.queue_bind(queue.exchange, "amq.topic", "#")
        yield rabbit.url.replace("guest:guest", "reader:secret")
    rabbit.control("delete_user", "reader")


def topic(key: str) -> Delivery:
    return delivery(Target("rabbitmq", exchange="amq.topic", routing_key=key))


def test_publish_with_a_forbidden_topic_refuses_that_one_alone(reader: str) -> None:
    batch = [topic("shut" if n == 50 else "open") for n in range(100)]
    with closing(open_publisher({"url": reader}, DEADLINE_S)) as publisher:
        first, second = publisher.publish(batch), publisher.publish(batch)
    assert set(verdicts(first)[:50]) <= {CONFIRMED, INDETERMINATE}
    assert verdicts(first)[50:] == [Verdict.TARGET_FAILED, *[CONFIRMED] * 49]
    assert verdicts(second) == [*[CONFIRMED] * 50, Verdict.TARGET_FAILED, *[CONFIRMED] * 49]


def test_publish_of_many_forbidden_topics_from_several_threads_refuses_no_other(
    reader: str,
) -> None:
    """A refusal comes while declarations of other batches are unanswered."""
    keys = [[f"shut.{t}.{n}" if n % 50 == 49 else "open" for n in range(200)] for t in range(40)]
    with (
        closing(open_publisher({"url": reader}, DEADLINE_S)) as publisher,
        ThreadPoolExecutor(6) as threads,
    ):
        batches = threads.map(lambda some: publisher.publish(list(map(topic, some))), keys)
        outcomes = [
            zip(some, batch, strict=True) for some, batch in zip(keys, batches, strict=True)
        ]
    found = Counter((key[:4], outcome.verdict) for batch in outcomes for key, outcome in batch)
    assert found["open", Verdict.TARGET_FAILED] == 0
    assert found["shut", CONFIRMED] == 0
    assert found["open", INDETERMINATE] <= 1200, "one window of each thread, at most"


def in_doubt(publisher: RabbitPublisher, keys: list[str]) -> int:
    """Publish each key amid permitted ones; return how many of these are in doubt."""
    count = 0
    for key in keys:
        outcomes = publisher.publish([topic(key if n == 50 else "open") for n in range(100)])
        assert outcomes.pop(50).verdict is Verdict.TARGET_FAILED
        assert set(verdicts(outcomes)) <= {CONFIRMED, INDETERMINATE}
        count += verdicts(outcomes).count(INDETERMINATE)
    return count


def test_publish_of_forbidden_topics_too_long_for_the_refusal_leaves_one_window_in_doubt(
    reader: str,
) -> None:
    with closing(open_publisher({"url": reader}, DEADLINE_S)) as publisher:
        assert in_doubt(publisher, [f"shut.{n}." + "x" * 220 for n in range(10)]) <= 50


def test_publish_to_a_topic_that_is_forbidden_later_leaves_one_window_in_doubt(
    rabbit: PrivateRabbit, reader: str
) -> None:
    with closing(open_publisher({"url": reader}, DEADLINE_S)) as publisher:
        in_doubt(publisher, ["shut"])
        assert verdicts(publisher.publish([topic("open.late")])) == [CONFIRMED]
        rabbit.control("set_topic_permissions", "reader", "amq.topic", "^open$", "")
        in_doubt(publisher, ["shut"])  # a channel remembers what it permitted: this ends it
        assert in_doubt(publisher, ["open.late"] * 10) <= 50
